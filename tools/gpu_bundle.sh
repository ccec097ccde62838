#!/bin/sh
# Packs what was built here into a folder that runs on another machine, such as one with a GPU:
#   tools/gpu_bundle.sh DIR [--build FOLDER] [--test NAME].. [--keep FILE]..
# then, there:
#   DIR/run retrograd run golf_tiny --check
#   DIR/run fusion-explain plan golf_plain_b48
#   DIR/run tests/rtc_test
#   DIR/run python3 ...            (with DIR/python on Python's path)
#
# The folder holds the stripped binaries, the shared libraries that they need, the captured graphs,
# the device specs, our Python files and tools/*.py; --keep adds a file or folder of the repository
# under its own path. The libraries travel compressed; `run` unpacks them once, beside itself or
# where the folder is read-only in a temporary folder.
#
# What does not travel: libc, libstdc++ and libgcc_s (the target's must be as new as this machine's),
# a C++ compiler (for --device host), and the GPU's side, which is loaded when it is first needed:
# the driver, NVRTC, cuBLASLt and cuDNN. Tests that read files of the source tree want it beside them.
set -eu

usage() {
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

root=$(cd "$(dirname "$0")/.." && pwd)
dir="" build="$root/build/release" tests="" keep=""
while [ $# -gt 0 ]; do
  case "$1" in
    --build) [ $# -gt 1 ] || usage; build=$2; shift ;;
    --test) [ $# -gt 1 ] || usage; tests="$tests $2"; shift ;;
    --keep) [ $# -gt 1 ] || usage; keep="$keep $2"; shift ;;
    -*) usage ;;
    *) [ -z "$dir" ] || usage; dir=$1 ;;
  esac
  shift
done
[ -n "$dir" ] || usage

if grep -qs 'CUDNN_FRONTEND_INCLUDE_DIR:PATH=.*NOTFOUND' "$build/CMakeCache.txt"; then
  echo "gpu_bundle.sh: $build has no cuDNN: attention and convolutions will run through slow kernels of" \
    "ours; scripts/cudnn_headers.sh fetches the headers" >&2
fi
if [ -e "$dir" ] && [ ! -e "$dir/.gpu_bundle" ] && [ -n "$(ls -A "$dir" 2>/dev/null)" ]; then
  echo "gpu_bundle.sh: $dir exists and is no bundle; name another folder or empty it" >&2
  exit 1
fi
for program in retrograd fusion-explain; do
  if [ ! -x "$build/bin/$program" ]; then
    echo "gpu_bundle.sh: no $build/bin/$program; build it first: scripts/build.sh release" >&2
    exit 1
  fi
done

rm -rf "$dir"
mkdir -p "$dir/bin" "$dir/tests" "$dir/lib" "$dir/models/graphs" "$dir/fusion/devices" "$dir/python"
: >"$dir/.gpu_bundle"

for program in "$build"/bin/*; do
  case "$program" in *.so.* | *.a) continue ;; esac  # libretrograd.so alone: who loads it names its path
  [ ! -f "$program" ] || strip -o "$dir/bin/$(basename "$program")" "$program"
done
for test in $tests; do
  if [ ! -x "$build/tests/$test" ]; then
    echo "gpu_bundle.sh: no $build/tests/$test; build it first: ninja -C $build $test" >&2
    exit 1
  fi
  strip -o "$dir/tests/$test" "$build/tests/$test"
done
# Shared libraries of our own that tests load (fake drivers) stand beside them, under their names.
for library in "$build"/tests/*.so "$build"/tests/*.so.*; do
  [ ! -f "$library" ] || strip -o "$dir/tests/$(basename "$library")" "$library"
done

# Every library that a binary asks for, but those of the C and C++ run time.
for binary in "$dir"/bin/* "$dir"/tests/*; do
  [ ! -f "$binary" ] || ldd "$binary"
done | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
  while read -r name path; do
    case "$name" in
      libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux* | \
        libstdc++.so.* | libgcc_s.so.*) ;;
      *) strip --strip-unneeded -o "$dir/lib/$name" "$path" ;;
    esac
  done
tar -C "$dir" -cf - lib | gzip -9n >"$dir/lib.tar.gz"
rm -rf "$dir/lib"

cp "$root"/models/graphs/* "$dir/models/graphs/"
cp "$root"/fusion/devices/*.textproto "$dir/fusion/devices/"
cp -R "$root/python/retrograd" "$dir/python/"
for file in "$root"/tools/*.py; do
  [ ! -f "$file" ] || { mkdir -p "$dir/tools" && cp "$file" "$dir/tools/"; }
done
for file in $keep; do
  mkdir -p "$dir/$(dirname "$file")"
  cp -R "$root/$file" "$dir/$(dirname "$file")/"
done
find "$dir" -name __pycache__ -type d -prune -exec rm -rf {} +

cat >"$dir/run" <<'RUN'
#!/bin/sh
# run PROGRAM [argument..]: a program of this bundle, or any other, with the bundle's libraries,
# graphs and device specs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || { echo "usage: $0 PROGRAM [argument..]; ours are:" "$here"/bin/* >&2; exit 2; }

# Unpacked beside this file, else in a private folder; renamed into place, so that of several
# processes that start at once each finds all of it or none.
libraries=$here
if [ ! -d "$libraries/lib" ]; then
  if [ -w "$here" ]; then parts=$(mktemp -d "$here/unpack.XXXXXX"); else
    parts=$(mktemp -d)
  fi
  tar -C "$parts" -xzf "$here/lib.tar.gz"
  if [ -w "$here" ]; then
    mv -T "$parts/lib" "$here/lib" 2>/dev/null || true
    rm -rf "$parts"
  else
    libraries=$parts
  fi
fi

# The GPU's libraries, where Python packages brought them (PyTorch's do), before the system's.
nvidia=$(python3 -c 'import glob, sys
print(":".join(sorted(d for p in sys.path if p for d in glob.glob(p + "/nvidia/*/lib"))))' \
  2>/dev/null || true)
[ ! -d /usr/local/cuda/lib64 ] || nvidia=${nvidia:+$nvidia:}/usr/local/cuda/lib64

# Python packages and system tools want their own libraries: ours reach only our programs.
program=$1
shift
case "$program" in
  */*) ;;
  *) [ ! -x "$here/bin/$program" ] || program=$here/bin/$program ;;
esac
case "$program" in
  tests/*) [ -x "$program" ] || program=$here/$program ;;
esac
# However a program of the bundle is named, from wherever: it gets the bundle's libraries.
case "$program" in
  */*) [ ! -x "$program" ] || program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program") ;;
esac
export RETROGRAD_DATA="${RETROGRAD_DATA:-$here}"
export RETROGRAD_BUNDLE="$here"
export PYTHONPATH="$here/python${PYTHONPATH:+:$PYTHONPATH}"
case "$program" in
  "$here"/*) 
    export LD_LIBRARY_PATH="$libraries/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}${nvidia:+:$nvidia}"
    ;;
esac
if [ "$libraries" = "$here" ]; then exec "$program" "$@"; fi
status=0
"$program" "$@" || status=$?
rm -rf "$libraries"
exit "$status"
RUN
chmod +x "$dir/run"
for program in "$dir"/bin/*; do
  name=$(basename "$program")
  case "$name" in *.so*) continue ;; esac
  printf '#!/bin/sh\nexec "$(dirname "$0")/run" %s "$@"\n' "$name" >"$dir/$name"
  chmod +x "$dir/$name"
done

echo "$dir: $(du -sm "$dir" | cut -f1) MiB; there: $dir/run retrograd run golf_tiny --check"
