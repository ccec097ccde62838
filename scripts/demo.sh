#!/bin/sh
# Takes real PyTorch backward graphs from their files to gradients: plan, explanation, execution of
# the generated kernels on this CPU, and the error against the gradients that PyTorch recorded.
set -eu
cd "$(dirname "$0")/.."
bin=build/release/bin
status=0
for graph in golf_tiny golf_tiny_h200; do
  echo "== $graph: planned for an H200"
  "$bin/fusion-explain" plan "$graph" --device h200 || status=1
  echo
  echo "== $graph: that plan's kernels executed on this CPU, against PyTorch's gradients"
  "$bin/retrograd" run "$graph" --spec h200 --device host --check || status=1
  echo
done
if [ "$status" -eq 0 ]; then
  echo "demo: every gradient agrees with PyTorch within its tolerance"
else
  echo "demo: FAILED, see above" >&2
fi
exit "$status"
