#!/bin/sh
# Builds what the scripts of bench/ load and runs one, by its name (run, ablate), with a Python that has
# torch; then the tables that show what was measured.
set -eu
cd "$(dirname "$0")/.."
python=""
for candidate in .venv/bin/python python3; do
  if "$candidate" -c 'import torch' >/dev/null 2>&1; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  scripts/venv.sh
  python=.venv/bin/python
fi
"$python" -c 'import sys, torch
sys.exit(None if torch.cuda.is_available() else "make bench: PyTorch sees no GPU; it measures on one")'
scripts/cudnn_headers.sh
scripts/build.sh release retrograd_shared retrograd
script=${1:-run}
[ $# -eq 0 ] || shift
"$python" "bench/$script.py" "$@"
"$python" bench/tables/readme_table.py
"$python" bench/tables/ablation_table.py --count
