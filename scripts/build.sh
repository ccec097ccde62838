#!/bin/sh
# Configures a preset where that has not happened yet and builds it with all cores.
#   scripts/build.sh PRESET [target..]
set -eu
cd "$(dirname "$0")/.."
preset=$1
shift
if [ ! -f "build/$preset/build.ninja" ]; then
  echo "Configuring build/$preset"
  log=$(mktemp)
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    exit 1
  fi
  rm -f "$log"
fi
exec cmake --build "build/$preset" ${1:+--target "$@"}
