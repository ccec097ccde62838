#!/bin/sh
# Installs the system packages that a job needs; returns at once when all of them are there.
#   scripts/install.sh [build] [test] [lint]
# The names are the same on Debian 12 and Ubuntu 24.04. Elsewhere it names what to install and goes
# on, because the compiler and CMake say best what is missing.
set -eu

build="g++ make cmake ninja-build ccache libabsl-dev libboost-dev libboost-context-dev
  libprotobuf-dev protobuf-compiler libcli11-dev nlohmann-json3-dev libopenblas-dev libxxhash-dev
  catch2"
test="python3 python3-venv pkg-config dpkg-dev"
# clang with libFuzzer and the sanitizers' libraries, whose package has the version in its name.
case "$(. /etc/os-release 2>/dev/null && echo "$ID$VERSION_ID")" in
  debian12) test="$test clang libclang-rt-14-dev" ;;
  ubuntu24.04) test="$test clang libclang-rt-18-dev" ;;
esac
# AMD's run-time compiler, which needs no GPU: the tests compile every HIP kernel with it.
[ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ] ||
  test="$test libamdhip64-5 libhiprtc-builtins5"
lint="clang-format clang-tidy"

wanted=""
for job in "${@:-build}"; do
  case "$job" in
    build) wanted="$wanted $build" ;;
    test) wanted="$wanted $test" ;;
    lint) wanted="$wanted $lint" ;;
    *) echo "install.sh: unknown job '$job'; use build, test or lint" >&2; exit 2 ;;
  esac
done

if ! command -v apt-get >/dev/null 2>&1; then
  echo "install.sh: no apt-get here; the build needs what Debian calls:" $wanted >&2
  exit 0
fi

installed=$(dpkg-query -W -f '${Package}:${db:Status-Status}\n' $wanted 2>/dev/null || true)
missing=""
for package in $wanted; do
  case "$installed" in
    *"$package:installed"*) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "install.sh: not root and no sudo; please install:$missing" >&2
    exit 1
  fi
  sudo="sudo"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs a command with its output in the log and a dot every two seconds; shows the log if it fails.
quietly() {
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    printf .
    sleep 2
  done
  if ! wait "$pid"; then
    echo " failed"
    tail -n 30 "$log" >&2
    return 1
  fi
}

[ -z "$sudo" ] || sudo -v  # asks for the password while the terminal is ours
apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o Dpkg::Use-Pty=0"
printf 'Installing%s ' "$missing"
# Package lists may be absent (containers) or old; an unknown package is retried with fresh ones.
if ! $apt install -y --no-install-recommends --simulate $missing >/dev/null 2>&1; then
  quietly $apt update
fi
if ! quietly $apt install -y --no-install-recommends $missing; then
  printf 'Refreshing the package lists '
  quietly $apt update
  quietly $apt install -y --no-install-recommends $missing
fi
echo " done"
