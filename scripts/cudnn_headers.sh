#!/bin/sh
# Fetches the headers that attention and convolutions through cuDNN are built with into .cache/cudnn:
# cudnn-frontend's and cuDNN's own, from PyPI. Nothing of them is needed to start what is built. Builds that are
# configured are configured again, so that they find them.
set -eu
cd "$(dirname "$0")/.."
into=.cache/cudnn
frontend=nvidia-cudnn-frontend==1.32.0
library=nvidia-cudnn-cu13==9.19.0.56

key="$frontend $library"
[ "$(cat "$into/fetched" 2>/dev/null)" != "$key" ] || exit 0

# cuDNN's wheel is large for the sake of its libraries; where its headers are installed, they do.
have=""
for folder in /usr/local/cuda/include /usr/local/cuda-*/include /usr/include /usr/local/include \
  /usr/include/x86_64-linux-gnu .venv/lib/python3*/site-packages/nvidia/cudnn/include; do
  [ ! -f "$folder/cudnn_graph.h" ] || have=$folder
done

python=""
for candidate in .venv/bin/python /usr/bin/python3 python3; do
  if "$candidate" -m pip --version >/dev/null 2>&1; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "cudnn_headers.sh: no Python with pip; install python3-pip" >&2
  exit 1
fi

rm -rf "$into"
mkdir -p "$into/wheels" "$into/include"
wanted=$frontend
[ -n "$have" ] || wanted="$wanted $library"
for package in $wanted; do
  echo "Fetching the headers of $package"
  "$python" -m pip download --disable-pip-version-check --quiet --retries 5 --no-deps \
    --only-binary=:all: --python-version 3.12 --implementation cp --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_27_x86_64 -d "$into/wheels" "$package"
done
"$python" - "$into" <<'PY'
import pathlib, sys, zipfile
into = pathlib.Path(sys.argv[1])
for wheel in (into / "wheels").glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            head, found, tail = name.partition("include/")
            if found and tail and not name.endswith("/") and head in ("", "nvidia/cudnn/"):
                target = into / "include" / tail
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
PY
rm -rf "$into/wheels"
echo "$key" >"$into/fetched"
for build in build/*/; do
  [ ! -f "$build/build.ninja" ] || cmake "$build" >/dev/null
done
