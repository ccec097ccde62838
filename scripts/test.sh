#!/bin/sh
# Everything that must hold: layers, C++ tests, Python tests. Runs all of them even when one fails,
# and ends non-zero if any did.
set -u
cd "$(dirname "$0")/.."
failed=""

# PyTorch is fetched while the compiler works.
mkdir -p build
scripts/venv.sh >build/venv.log 2>&1 &
venv=$!

if ! scripts/build.sh release; then
  kill "$venv" 2>/dev/null
  echo "make test: FAILED to build" >&2
  exit 1
fi

echo "== Include directions"
tools/check_layers.sh || failed="$failed layers"

echo "== C++ tests"
ctest --test-dir build/release --output-on-failure --no-tests=error -j "$(nproc)" ||
  failed="$failed ctest"
grep -h '^\[SKIP\]' build/release/Testing/Temporary/LastTest.log | sort | uniq -c

echo "== Python tests"
if ! wait "$venv"; then
  tail -n 30 build/venv.log >&2
  failed="$failed venv"
else
  grep '^Creating' build/venv.log
  PYTHONPATH=python RETROGRAD_BIN_DIR=build/release/bin \
    .venv/bin/python -m pytest -q -rs python/tests || failed="$failed pytest"
fi

if [ -n "$failed" ]; then
  echo "make test: FAILED:$failed" >&2
  exit 1
fi
echo "make test: all passed"
