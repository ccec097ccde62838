#!/usr/bin/env python3
"""How long a user waits for the first gradients: Inductor beside backend="retrograd".

    bench/cold_start.py [NAME ..] [--cores 4] [--out FILE] [--device cpu]

For each model, processes of their own with empty caches, then with the caches that they left. Seconds
of a process's first step: what compiling its backward took, wherever PyTorch does it, and its first
`loss.backward()` beside that. The ratios divide ours, both together, by Inductor's compiling alone.
--cores runs every process on that many cores, and several models at once if there are more.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "models"), str(ROOT / "python")]


class Stopwatch:
    """Seconds spent in calls of some functions; calls within calls count once."""

    def __init__(self):
        self.seconds, self._depth = 0.0, 0

    def timed(self, function, counts=lambda *args, **how: True):
        def call(*args, **how):
            if self._depth or not counts(*args, **how):
                return function(*args, **how)
            self._depth, begin = 1, time.perf_counter()
            try:
                return function(*args, **how)
            finally:
                self._depth = 0
                self.seconds += time.perf_counter() - begin

        return call


def first_step(name, side, device):
    """Times the first step of this process."""
    from measure import watch
    from retrograd.backend import compiled, entry, programs
    from torch._inductor import compile_fx

    clock = Stopwatch()
    if side == "inductor":
        compile_fx.compile_fx_inner = clock.timed(
            compile_fx.compile_fx_inner, lambda *args, **how: bool(how.get("is_backward"))
        )
    else:
        entry.compile_backward = clock.timed(entry.compile_backward)
        compiled.CompiledBackward.open = clock.timed(compiled.CompiledBackward.open)
    import training

    step = training.step_of(name, device, side)
    if side == "inductor":
        import torch

        torch._dynamo.reset()
        step.call = torch.compile(step.model, backend=_inductor_of_now, dynamic=False)
    begin = time.perf_counter()
    step.forward()
    watch.synchronize()
    ahead, before_backward = clock.seconds, time.perf_counter()
    step.backward()
    watch.synchronize()
    end = time.perf_counter()
    compiling = clock.seconds
    row = {"backward_compile_s": compiling, "first_step_s": end - begin,
           "first_backward_s": end - before_backward - (compiling - ahead)}  # fmt: skip
    if side == "retrograd":
        told = [p.executable.describe() for p in programs._programs.values()]
        row["stages_s"] = [{"plans": t["plans"], **t["seconds"]} for t in told]
    return row


def _inductor_of_now(module, inputs):
    """Inductor with whatever compile_fx_inner is: as a default argument it was bound before."""
    from torch._inductor import compile_fx

    return compile_fx.compile_fx(module, inputs, inner_compile=compile_fx.compile_fx_inner)


def in_process(name, side, options, caches, cores):
    """first_step in a new process whose caches lie in a folder."""
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor", "XDG_CACHE_HOME": f"{caches}/xdg",
        "TRITON_CACHE_DIR": f"{caches}/triton", "CUDA_CACHE_PATH": f"{caches}/cuda",
        "TORCHINDUCTOR_COMPILE_THREADS": str(len(cores)),
    }  # fmt: skip
    found = subprocess.run(
        [sys.executable, *options.through, __file__, "--one", name, "--side", side, "--device",
         options.device],
        env=environment, capture_output=True, text=True, check=False, timeout=60 * options.minutes,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )  # fmt: skip
    lines = [line for line in found.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"failed": found.stderr[-2000:]}


def measure(name, options, cores):
    row = {}
    for side in ("inductor", "retrograd"):
        with tempfile.TemporaryDirectory() as caches:
            for state in ("cold", "warm"):
                row[f"{side}_{state}"] = in_process(name, side, options, caches, cores)
    theirs = row["inductor_cold"].get("backward_compile_s")
    for state in ("cold", "warm"):
        ours = row[f"retrograd_{state}"]
        if theirs and "failed" not in ours:
            row[f"{state}_ratio"] = (ours["backward_compile_s"] + ours["first_backward_s"]) / theirs
    print(name, json.dumps(row), flush=True)
    return row


def main():
    import training

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; default: the twelve")
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=5, help="for one process at most")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu tries the script")  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--commit", help="noted in the file; default: git's")
    parser.add_argument("--through", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(first_step(options.one, options.side, options.device)))
        return
    import run
    from measure import one_model

    cores = sorted(os.sched_getaffinity(0))
    share = min(options.cores, len(cores))
    lanes = queue.Queue()
    for i in range(len(cores) // share):
        lanes.put(cores[i * share : (i + 1) * share])

    def in_lane(name):
        own = lanes.get()
        try:
            return measure(name, options, own)
        finally:
            lanes.put(own)

    result = {
        "command": " ".join(["bench/cold_start.py", *sys.argv[1:]]),
        "commit": options.commit or run.commit(), "machine": one_model.machine(options.device),
        "cores": share, "models": {},
    }  # fmt: skip
    with concurrent.futures.ThreadPoolExecutor(lanes.qsize()) as pool:
        names = options.names or training.MODELS
        for name, row in zip(names, pool.map(in_lane, names), strict=True):
            result["models"][name] = row
    if options.out:
        run.write_row(options.out, result)


if __name__ == "__main__":
    sys.exit(main())
