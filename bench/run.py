#!/usr/bin/env python3
"""Backward passes of real models: ours beside PyTorch's, on one GPU, on the same backward.

  bench/run.py                     every model of models/zoo.py that is of full size: make bench
  bench/run.py golf_gpt_34m_b32    one of them
  bench/run.py norms               single norms, ours alone
  bench/run.py --again --out DIR   measured already or not

Each model has a process and a file of its own, DIR/NAME.json: a run that was stopped goes on with
the models that have none yet, and a model that fails stops no other. Both sides keep the GPU busy
while the host issues the work, so that only the GPU's time counts; ratios are within a process. What
is measured and how: docs/benchmarks.md. bench/tables/readme_table.py makes README's table of the
files.

Needs torch, a GPU, and the library that `make build` leaves in build/release/bin; no network.
"""

import argparse
import glob
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("bench", "python", "models")]

MINUTES = 15  # for one model, all modes
FORMAT = 1  # of the files; others are measured again
NORMS = "norms"  # no model: single norms, ours alone


def default_models():
    import zoo

    return [NORMS, *zoo.FULL_SIZE, *zoo.BENCHED]


def path_of(name, out):
    return out / f"{name}.json"


def finished(path, key):
    """The row that a file holds, if it is whole and measured what `key` says; else None."""
    try:
        row = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return row if isinstance(row, dict) and row.get("key") == key else None


def write_row(path, row):
    """Whole or not at all."""
    from retrograd.atomic_file import write_atomically

    write_atomically(path, (json.dumps(row, indent=1) + "\n").encode())


def environment():
    """For a model's process: NVIDIA's libraries where Python packages brought them."""
    folders = sorted(d for p in sys.path if p for d in glob.glob(f"{p}/nvidia/*/lib"))
    known = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": ":".join([*folders, *([known] if known else [])])}


def run_all(names, options, key, start):
    """Measures what is not measured yet. start(name, path): runs the process of one model, and
    returns why it failed, or None."""
    failed = []
    for name in names:
        path = path_of(name, options.out)
        row = None if options.again else finished(path, key)
        if row is None:
            print(f"{name} ...", flush=True)
            why = start(name, path)
            row = finished(path, key)
            if row is None:
                failed.append(name)
                print(f"{name}: FAILED: {why or 'it left no figures'}", flush=True)
                continue
        print(summary(row), flush=True)
    return failed


def start_process(options, key):
    def start(name, path):
        path.unlink(missing_ok=True)
        command = [sys.executable, __file__, "--one", name, "--out", str(options.out)]
        command += ["--device", options.device, "--key", json.dumps(key)]
        command += ["--library", str(options.library)]
        command += ["--graphs", str(options.graphs)] if options.graphs else []
        command += ["--inductor-cache", str(options.inductor_cache)] if options.inductor_cache else []
        try:
            done = subprocess.run(
                command, env=environment(), timeout=60 * options.minutes, check=False
            )
        except subprocess.TimeoutExpired:
            return f"more than {options.minutes} minutes"
        return f"exit status {done.returncode}" if done.returncode else None

    return start


def measure_one(options, key):
    from measure import one_model

    begin = time.monotonic()

    def say(text):
        print(f"  {time.monotonic() - begin:6.1f} s  {text}", flush=True)

    if options.one == NORMS:
        from measure import norms

        row = {"model": NORMS, "machine": one_model.machine(options.device), "status": "measured"}
        row["norms"] = norms.measure(options.library, say)
    else:
        row = one_model.measure(
            options.one, options.device, options.library, key["repeat"], key["modes"], say,
            options.graphs, options.inductor_cache,
        )  # fmt: skip
    write_row(
        path_of(options.one, options.out),
        {"key": key, "seconds": round(time.monotonic() - begin, 1), **row},
    )


def best_of(row):
    """(mode, milliseconds) of PyTorch's fastest."""
    times = {mode: m["gpu_ms"]["median"] for mode, m in row["pytorch"].items()}
    return min(times.items(), key=lambda item: item[1])


def summary(row):
    """One line on a row."""
    if row["status"] != "measured":
        return f"{row['model']}: {row['status']}: {row['reason']}"
    if "norms" in row:
        return ", ".join(f"{n} {f['measured_us']:.1f} us" for n, f in row["norms"].items())
    ours = {choice: o["gpu_ms"]["median"] for choice, o in row["ours"].items()}
    times = ", ".join(f"{mode} {m['gpu_ms']['median']:.2f}" for mode, m in row["pytorch"].items())
    text = f"{row['model']}: ours {ours['deterministic']:.2f} ms ({ours['nondeterministic']:.2f})"
    if row["pytorch"]:
        mode, least = best_of(row)
        text += f"; {times}; {ours['deterministic'] / least:.3f} of {mode}"
    unequal = [m for m, r in row["pytorch"].items() if r.get("saved", {}).get("equal") is False]
    return text + (f"; OTHER SAVED BYTES in {', '.join(unequal)}" if unequal else "")


def commit():
    """Of this source tree; empty for a copy without its history."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError:
        return ""
    return done.stdout.strip()


def slug_of_device(device):
    """nvidia_h200"""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return "".join(c if c.isalnum() else "_" for c in name.lower())


def missing(device):
    """Why nothing can be measured here, or None."""
    try:
        import torch
    except ImportError:
        return "torch is not installed for this Python"
    if device == "cuda" and not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; default: all")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="default: bench/results/backward_ and the GPU's name")  # fmt: skip
    parser.add_argument("--library", help="libretrograd.so, if it is somewhere else")
    parser.add_argument("--graphs", type=pathlib.Path, metavar="DIR",
                        help="leave the captured graphs there, NAME.bwd.pb")  # fmt: skip
    parser.add_argument("--inductor-cache", type=pathlib.Path, metavar="DIR",
                        help="Inductor's compiled code is kept there; no first step is timed")  # fmt: skip
    parser.add_argument("--modes", default="eager,inductor,mix_order_reduction_off,reduce_overhead")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for one model at most")
    parser.add_argument("--commit", help="noted in the files; default: git's")
    parser.add_argument("--again", action="store_true", help="measure what has been measured, too")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu tries the script; the times mean nothing")  # fmt: skip
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--key", help=argparse.SUPPRESS)
    options = parser.parse_args()
    why = missing(options.device)
    if why:
        sys.exit(f"bench/run.py: {why}; it measures with PyTorch 2.11 on an NVIDIA GPU")
    import zoo
    from measure import ours, pytorch

    if options.one:
        return measure_one(options, json.loads(options.key))
    modes = [m for m in options.modes.split(",") if m]
    unknown = [m for m in modes if m not in pytorch.MODES]
    if unknown:
        parser.error(f"no mode {unknown[0]!r}; there are {', '.join(pytorch.MODES)}")
    try:
        for name in options.names:
            if name != NORMS:
                zoo.maker(name)
    except ValueError as error:
        parser.error(f"{error}; {NORMS} are single norms")
    try:
        options.library = ours.find_library(options.library)
    except FileNotFoundError as error:
        sys.exit(f"bench/run.py: {error}")
    if options.out is None:
        options.out = ROOT / "bench/results" / f"backward_{slug_of_device(options.device)}"
    key = {
        "format": FORMAT,
        "commit": commit() if options.commit is None else options.commit,
        "repeat": options.repeat,
        "modes": modes,
    }
    failed = run_all(options.names or default_models(), options, key, start_process(options, key))
    return f"bench/run.py: no figures of {', '.join(failed)}" if failed else None


if __name__ == "__main__":
    sys.exit(main())
