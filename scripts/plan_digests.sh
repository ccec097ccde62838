#!/bin/sh
# Digests of what is planned and generated: one line for each graph of the registry on each device.
# Two builds that print the same lines plan the same kernels and write the same source.
#   scripts/plan_digests.sh [BIN_DIR] >digests.txt
set -eu
cd "$(dirname "$0")/.."
bin=${1:-build/release/bin}
for graph in $("$bin/retrograd" models | sed -n 's/^\([a-z0-9_]*\)  *\(builder\|captured\).*/\1/p'); do
  for device in h100 h200 mi250x mi300x; do
    dialect=cuda
    case $device in mi*) dialect=hip ;; esac
    plan=$("$bin/retrograd" dump "$graph" --spec "$device" --stage lower --stage plan \
      --stage schedule --stage memory 2>/dev/null | md5sum | cut -c1-16)
    kernels=$("$bin/retrograd" kernels "$graph" --spec "$device" --dialect "$dialect" 2>/dev/null |
      md5sum | cut -c1-16)
    printf '%-20s %-7s plan %s kernels %s\n' "$graph" "$device" "$plan" "$kernels"
  done
done
