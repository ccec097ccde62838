#!/bin/sh
# Format and clang-tidy's checked subset. Reads the files given, or all C++ of the repository.
set -eu
cd "$(dirname "$0")/.."
files=${*:-$(git ls-files '*.cc' '*.h')}
clang-format --dry-run -Werror $files
[ -f build/release/compile_commands.json ] || cmake --preset release >/dev/null
sources=$(printf '%s\n' $files | grep '\.cc$' || true)
[ -z "$sources" ] ||
  printf '%s\n' $sources | xargs -P "$(nproc)" -n 4 clang-tidy -p build/release --quiet
