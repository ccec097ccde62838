#!/bin/sh
# Runs the fuzzer over loading, planning and printing for some seconds, from the corpus of the
# repository and what earlier runs added to build/fuzz/corpus. A finding ends it with an error and
# is left in build/fuzz as crash-*, to be run alone: build/fuzz/bin/graph_fuzzer FILE.
#   scripts/fuzz.sh [SECONDS]
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-30}
if ! command -v clang++ >/dev/null 2>&1; then
  echo "[SKIP] no clang++, whose libFuzzer the fuzzer needs"
  exit 0
fi
scripts/build.sh fuzz graph_fuzzer plan_digest
mkdir -p build/fuzz/corpus
log=build/fuzz/fuzz.log
# -entropic=0: libFuzzer would spend nine tenths of the time on its own statistics.
if ! build/fuzz/bin/graph_fuzzer -entropic=0 -max_total_time="$seconds" -max_len=2048 -timeout=30 \
    -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix=build/fuzz/ -verbosity=0 \
    build/fuzz/corpus tests/fuzz/corpus >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  exit 1
fi
grep -E 'number_of_executed|average_exec' "$log" | sed 's/stat:://'
