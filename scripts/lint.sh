#!/bin/sh
# Format and clang-tidy's checked subset. Reads the files given, or all C++ of the repository.
set -eu
cd "$(dirname "$0")/.."
files=${*:-$(git ls-files '*.cc' '*.h')}
clang-format --dry-run -Werror $files
# Without the precompiled headers, so that each file is seen to include what it uses.
cmake --preset release -B build/lint -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
cmake --build build/lint --target retrograd_graph_proto retrograd_kernel_proto \
  retrograd_runtime_proto >/dev/null
sources=$(printf '%s\n' $files | grep '\.cc$' || true)
[ -z "$sources" ] ||
  printf '%s\n' $sources | xargs -P "$(nproc)" -n 4 clang-tidy -p build/lint --quiet
