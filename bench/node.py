#!/usr/bin/env python3
"""Where the host's time of `loss.backward()` goes with backend="retrograd", part by part.

    bench/node.py [NAME ..] [--sides retrograd,retrograd_reduce_overhead] [--device cpu]
                  [--runs 60] [--no-threads]

For each model the 20th percentile and the median, in microseconds, of: the whole call (total); the
way from the call to our node of autograd (in): Python, the gradient of the loss, autograd's count
of its nodes, the wake-up of the device's thread; the node by parts as docs/pytorch.md has them; the
way back (out): autograd lets go of what was saved and wakes the caller. Sides that are Inductor's
have a total alone. NAME: a model of bench/training.py, or small:N, layers of N small parameters.
--no-threads runs backwards in the calling thread (torch.autograd.set_multithreading_enabled), on
every side alike.
"""

import argparse
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "models"), str(ROOT / "python")]

WARM_UP = 6


def small(count, device):
    """(model, args, kwargs): so many parameters of up to 8 x 8."""
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            blocks = [m for _ in range(count // 4) for m in (nn.Linear(8, 8), nn.LayerNorm(8))]
            self.layers = nn.Sequential(*blocks)

        def forward(self, x):
            return self.layers(x).sum()

    return Small().to(device), (torch.randn(4, 8, device=device),), {}


def make_step(name, device, side):
    """A step of the model, as bench/training.py has it."""
    import training
    import zoo

    if not name.startswith("small:"):
        return training.step_of(name, device, side)
    count, make, autocasts = int(name.split(":")[1]), zoo.make, zoo.autocasts
    zoo.make, zoo.autocasts = lambda *_: small(count, device), lambda *_: False
    try:
        return training.step_of(name, device, side)
    finally:
        zoo.make, zoo.autocasts = make, autocasts


def rows_of(step, module, runs):
    """For each of so many backwards, microseconds by part."""
    from measure import watch

    rows = []
    for _ in range(runs):
        step.forward()
        watch.synchronize()
        before, count = (module.host_ns(), module.counts()[0]) if module else ({}, 0)
        begin = time.monotonic_ns()
        step.backward()
        end = time.monotonic_ns()
        row = {"total": end - begin}
        if module and module.counts()[0] == count + 1:
            ran, done = module.last_run_ns()
            after = module.host_ns()
            row |= {"in": ran - begin} | {part: after[part] - before[part] for part in after}
            row |= {"out": end - done}
        rows.append({part: ns / 1e3 for part, ns in row.items()})
        watch.synchronize()
    return rows


def measure(name, side, options):
    import torch
    import training
    from retrograd.backend.node import extension

    torch._dynamo.reset()
    step = make_step(name, options.device, side)
    for _ in range(WARM_UP // 2):
        step.whole()
    training._settle(step, side)
    for _ in range(WARM_UP):
        step.whole()
    rows = rows_of(step, extension.loaded(), options.runs)
    parts = max((list(row) for row in rows), key=len)
    told = []
    for part in parts:
        found = sorted(row[part] for row in rows if part in row)
        told.append(f"{part} {found[len(found) // 5]:.0f}|{statistics.median(found):.0f}")
    count = sum(p.requires_grad for p in step.model.parameters())
    print(f"{name} {side}, {count} parameters: {'  '.join(told)}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", default=["small:200"])
    parser.add_argument("--sides", default="retrograd")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--no-threads", action="store_true")
    options = parser.parse_args()
    import torch
    import training

    unknown = [s for s in options.sides.split(",") if s not in training.SIDES]
    if unknown:
        parser.error(f"no side {unknown[0]!r}; there are {', '.join(training.SIDES)}")
    with torch.autograd.set_multithreading_enabled(not options.no_threads):
        for name in options.names:
            for side in options.sides.split(","):
                measure(name, side, options)


if __name__ == "__main__":
    sys.exit(main())
