#!/bin/sh
# The tests of the C interface under sanitizers: addresses, leaks and undefined behaviour in one
# build, races between threads in another.
set -eu
cd "$(dirname "$0")/.."
tests="c_api_test c_api_run_test c_api_lifetime_test accumulating_runs_test layers_test"
export OPENBLAS_NUM_THREADS=1

scripts/build.sh asan $tests
for test in $tests; do
  ASAN_OPTIONS=detect_leaks=1 build/asan/tests/"$test"
done

scripts/build.sh tsan $tests
for test in $tests; do
  TSAN_OPTIONS=halt_on_error=1 build/tsan/tests/"$test"
done
