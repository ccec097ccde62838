#!/bin/sh
# Data moves in one direction: graph -> fusion/kernel -> fusion -> codegen -> runtime, and models
# knows graph alone. Fails with file:line for every #include against that order, for driver headers
# outside the device files, for heavy headers (Boost, protobuf) inside ours, and for clocks in the
# stages that must be deterministic. Text inside raw string literals is a kernel's and is skipped.
set -eu
cd "$(dirname "$0")/.."

files=$(find graph fusion codegen runtime models tools tests \
  \( -name '*.cc' -o -name '*.h' -o -name '*.def' \) | LC_ALL=C sort)

# What a folder's files may include of ours, as a regular expression of path prefixes.
awk '
function allowed(file) {
  if (file ~ /^graph\//) return "^graph/"
  if (file ~ /^fusion\/kernel\//) return "^(graph|fusion/kernel)/"
  if (file ~ /^fusion\//) return "^(graph|fusion)/"
  if (file ~ /^codegen\//) return "^(graph|fusion|codegen)/"
  if (file ~ /^runtime\//) return "^(graph|fusion|codegen|runtime)/"
  if (file ~ /^models\//) return "^(graph|models)/"
  if (file ~ /^tools\//) return "^(graph|fusion|codegen|runtime|models|tools)/"
  return "^(graph|fusion|codegen|runtime|models|tools|tests)/"
}
function folder(file) {
  if (file ~ /^fusion\/kernel\//) return "fusion/kernel"
  return substr(file, 1, index(file, "/") - 1)
}
function refuse(why) {
  printf "%s:%d: %s (%s)\n", FILENAME, FNR, why, $0
  bad++
}
FNR == 1 { files[folder(FILENAME)]++; raw = "" }
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
  else if (path ~ /^(graph|fusion|codegen|runtime|models|tools|tests|python)\// &&
           path !~ allowed(FILENAME)) refuse(folder(FILENAME) " must not know " path)
  if (path == "graph/boost_graph.h" && header) refuse("boost_graph.h is for .cc files only")
  if (path ~ /\.pb\.h$/ && header && FILENAME !~ /^tests\//)
    refuse("protobuf headers stay out of our headers")
}
/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
  match($0, /[<"][^>"]*/)
  path = substr($0, RSTART + 1, RLENGTH - 1)
  if (path ~ /^(cuda|nvrtc|cublas|cudnn|nvml|hip|rocblas|hipblas|miopen)([_a-zA-Z0-9]*\.h|\/)/ &&
      FILENAME !~ /^(runtime\/(cuda|cublas|cudnn|hip)_[a-z0-9_]*|tests\/fake_[a-z0-9_\/]*)\.(h|cc)$/)
    refuse("driver headers belong to runtime/{cuda,cublas,cudnn,hip}_* and tests/fake_*")
  if (path ~ /^boost\// && FILENAME ~ /\.h$/ && FILENAME != "graph/boost_graph.h" &&
      FILENAME !~ /^(codegen|runtime)\/host_/)
    refuse("Boost headers stay out of our headers, graph/boost_graph.h apart")
  if (path ~ /^(chrono|ctime|time\.h|sys\/time\.h)$/ && FILENAME ~ /^(graph|fusion|codegen)\//)
    refuse(folder(FILENAME) " must not read clocks")
}
END {
  n = split("graph fusion/kernel fusion codegen runtime models tools tests", order, " ")
  for (i = 1; i <= n; i++) if (files[order[i]]) total = total sprintf(" %s %d", order[i], files[order[i]])
  printf "check_layers: %d includes of ours in files of:%s\n", includes, total
  if (bad) { printf "check_layers: %d wrong includes\n", bad; exit 1 }
  print "check_layers: every include points in the right direction"
}' $files
