#!/bin/sh
# Data moves in one direction. The folders stand below in its order: a file includes its own folder
# and those before it, and nothing behind it; models/ knows graph/ alone, verify/ the plan and the
# kernel IR alone, so that it shares no code with what it judges. Fails with file:line for every
# #include against that order, for a folder that has no place in it, for folders of more files (C++ or
# Python) than a reader takes in, for driver headers outside the files of that driver, for heavy headers
# (Boost, protobuf) inside ours, and for clocks in the stages that must be deterministic. Text inside raw
# string literals is a kernel's and is skipped.
set -eu
cd "$(dirname "$0")/.."

order="
  graph/base graph/ir graph/ir/library graph/text graph/symbols graph/proto graph/passes graph/passes/sums graph/reference
  models
  fusion/kernel/ir fusion/kernel/ir/accesses fusion/device fusion/kernel/templates
  fusion/kernel/templates/held_columns fusion/kernel/templates/held_tiles fusion/kernel/gemm fusion/kernel/build
  fusion/plan
  fusion/verify fusion/analysis fusion/cost fusion/ops fusion/ops/matmul fusion/ops/attention
  fusion/ops/convolution fusion/ops/grouped_matmul fusion/ops/scatter_lines fusion/ops/segment_amax
  fusion/ops/sort_indices
  fusion/lower/layouts fusion/lower/indexed fusion/lower/private fusion/lower fusion/calls fusion/pricing fusion/search/atoms fusion/search
  fusion/gemm_merge fusion/horizontal fusion/explain fusion/planner fusion/whatif
  codegen/print/numbers codegen/print codegen/preludes/gpu codegen/preludes codegen/templates codegen/attention codegen/tile_products codegen/convolution
  codegen/gemm codegen/grouped_matmul codegen/scatter_lines codegen/segment_amax codegen/sort codegen
  runtime/compiler runtime/tuning runtime/device runtime/host/sanitizer runtime/host runtime/trials
  runtime/gpu runtime/gpu/hip runtime/gpu/cuda runtime/ops/matmul runtime/ops/attention
  runtime/ops/convolution runtime/ops/grouped_matmul runtime/ops/scatter_lines
  runtime/ops/segment_amax
  runtime/ops/sort_indices
  runtime/devices runtime/schedule runtime/memory runtime/program
  runtime/executable
  tools/support tools/execute tools/fit tools/explain tools/calibrate tools/run tools/bench
  include/retrograd api"

files=$(find graph models fusion codegen runtime tools include api tests \
  \( -name '*.cc' -o -name '*.h' -o -name '*.def' \) | LC_ALL=C sort)

python=$(find bench models python scripts -name '*.py' | LC_ALL=C sort)

awk -v order="$order" -v python="$python" -v most_files=26 '
function folder(file) { sub(/\/[^\/]*$/, "", file); return file }
function refuse(why) {
  printf "%s:%d: %s (%s)\n", FILENAME, FNR, why, $0
  bad++
}
# Why a file of folder `from` may not include one of folder `to`; empty if it may.
function why_not(from, to) {
  if (from ~ /^tests(\/|$)/ || from == to) return ""
  if (to ~ /^tests(\/|$)/) return from " must not know tests"
  if (!(to in rank)) return "there is no folder " to
  if (from == "models" && to !~ /^graph\//) return "models must not know " to
  if (from == "fusion/verify" && to !~ /^(graph\/|fusion\/(plan|kernel\/ir)$)/)
    return "a checker shares no code with the planner, but for the plan and the kernel IR"
  if (from !~ /^tools/ && to == "models") return from " must not know models"
  if (rank[to] > rank[from]) return from " stands before " to
  return ""
}
BEGIN {
  n = split(order, names, /[ \n]+/)
  for (i = 1; i <= n; i++) if (names[i] != "") rank[names[i]] = i
  n = split(python, names, "\n")
  for (i = 1; i <= n; i++) if (++modules[folder(names[i])] == most_files + 1) {
    printf "%s: more than %d Python files in %s\n", names[i], most_files, folder(names[i])
    bad++
  }
}
FNR == 1 {
  raw = ""
  mine = folder(FILENAME)
  if (!(mine in rank) && mine !~ /^tests(\/|$)/) refuse("the folder " mine " has no place in the order")
  if (++count[mine] == most_files + 1) refuse("more than " most_files " files in " mine)
}
raw != "" {  # inside R"x( ... )x"
  at = index($0, raw)
  if (!at) next
  $0 = substr($0, at + length(raw))
  raw = ""
}
{
  line = $0
  while (match(line, /R"[A-Za-z_]*\(/)) {
    end = ")" substr(line, RSTART + 2, RLENGTH - 3) "\""
    rest = substr(line, RSTART + RLENGTH)
    at = index(rest, end)
    if (!at) { raw = end; break }
    line = substr(rest, at + length(end))
  }
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
  split($0, part, "\"")
  path = part[2]
  includes++
  header = FILENAME ~ /\.h$/
  if (path !~ /\//) refuse("include from the repository root: \"folder/" path "\"")
  else if (path ~ /^(graph|fusion|codegen|runtime|models|tools|tests|python)\//) {
    why = why_not(mine, folder(path))
    if (why != "") refuse(why)
  }
  if (path == "graph/ir/boost_graph.h" && header) refuse("boost_graph.h is for .cc files only")
  if (path ~ /\.pb\.h$/ && header && FILENAME !~ /^tests\//)
    refuse("protobuf headers stay out of our headers")
}
/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
  match($0, /[<"][^>"]*/)
  path = substr($0, RSTART + 1, RLENGTH - 1)
  file = FILENAME
  sub(/.*\//, "", file)
  if (path ~ /^(cuda|nvrtc|cublas|cudnn|nvml|hip|rocblas|hipblas|miopen)([_a-zA-Z0-9]*\.h|\/)/ &&
      !(FILENAME ~ /^runtime\// && file ~ /^(cuda|cublas|cudnn|cupti|hip|tma)[a-z0-9_]*\.(h|cc)$/) &&
      FILENAME !~ /^tests\/fake_gpu\//)
    refuse("driver headers belong to runtime files named cuda*, cublas*, cudnn*, cupti*, hip*, tma* and to tests/fake_gpu")
  if (path ~ /^boost\// && FILENAME ~ /\.h$/ && FILENAME != "graph/ir/boost_graph.h" &&
      FILENAME !~ /^runtime\/host\// && FILENAME !~ /^codegen\/preludes\/host_/)
    refuse("Boost headers stay out of our headers, graph/ir/boost_graph.h apart")
  if (path ~ /^(chrono|ctime|time\.h|sys\/time\.h)$/ && FILENAME ~ /^(graph|fusion|codegen)\//)
    refuse(folder(FILENAME) " must not read clocks")
}
END {
  for (f in count) folders++
  printf "check_layers: %d includes of ours in %d folders\n", includes, folders
  if (bad) { printf "check_layers: %d wrong\n", bad; exit 1 }
  print "check_layers: every include points in the right direction"
}' $files
