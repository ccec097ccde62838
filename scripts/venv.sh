#!/bin/sh
# Creates .venv with the packages of python/requirements.txt, once per content of that file.
set -eu
cd "$(dirname "$0")/.."
requirements=python/requirements.txt
stamp=.venv/installed
key=$(sha256sum "$requirements" | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then
  exit 0
fi

# The system's Python first: its venv module came with the packages of scripts/install.sh.
python=""
for candidate in /usr/bin/python3 python3 python3.12 python3.11 python3.13; do
  if "$candidate" -c 'import sys, venv, ensurepip
sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "venv.sh: no Python from 3.11 to 3.13 with the venv module; install python3-venv" >&2
  exit 1
fi

echo "Creating .venv with $("$python" --version) (PyTorch with its CUDA libraries: about 5 GB)"
rm -rf .venv
"$python" -m venv .venv
.venv/bin/python -m pip install --disable-pip-version-check --progress-bar off --retries 5 \
  -r "$requirements"
echo "$key" >"$stamp"
