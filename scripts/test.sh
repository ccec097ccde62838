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

echo "== Paths that pages and comments name"
scripts/check_docs.sh || failed="$failed docs"

echo "== README's tables"
python3 bench/tables/readme_table.py --check || failed="$failed readme"
python3 bench/tables/ablation_table.py --check || failed="$failed benchmarks"
python3 bench/tables/training_table.py --check || failed="$failed training"
python3 bench/tables/ops_table.py --check || failed="$failed ops"
python3 bench/tables/sizes_table.py --check || failed="$failed sizes"
python3 bench/tables/parts_table.py --check || failed="$failed parts"
python3 bench/tables/three_parts_table.py --check || failed="$failed three_parts"

wait "$venv" || {
  tail -n 30 build/venv.log >&2
  failed="$failed venv"
}
grep '^Creating' build/venv.log

# Before the C++ tests, which compare what clang's build of the planner plans.
echo "== Fuzzing"
scripts/fuzz.sh 30 || failed="$failed fuzz"

echo "== C++ tests"
# NVIDIA's run-time compiler comes with PyTorch where the system has none.
if ! ldconfig -p 2>/dev/null | grep -q libnvrtc; then
  for folder in "$PWD"/.venv/lib/python3*/site-packages/nvidia/*/lib; do
    ls "$folder" 2>/dev/null | grep -q '^libnvrtc\.so' &&
      export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  done
fi
ctest --test-dir build/release --output-on-failure --no-tests=error -j "$(nproc)" ||
  failed="$failed ctest"
grep -h '^\[SKIP\]' build/release/Testing/Temporary/LastTest.log | sort | uniq -c

echo "== Python tests"
# A process a core, each with files of its own; PyTorch's threads would wait for each other's.
PYTHONPATH=python RETROGRAD_BIN_DIR=build/release/bin OMP_NUM_THREADS=1 \
  .venv/bin/python -m pytest -q -rs -n auto --maxprocesses 8 --dist loadfile python/tests ||
  failed="$failed pytest"

if [ -n "$failed" ]; then
  echo "make test: FAILED:$failed" >&2
  exit 1
fi
echo "make test: all passed"
