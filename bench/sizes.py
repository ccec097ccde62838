#!/usr/bin/env python3
"""Backwards of models whose inputs change in size, ours beside Inductor's, with dynamic=True.

  bench/sizes.py                         the models of MODELS
  bench/sizes.py gpt2 --out FILE         one of them
  bench/sizes.py --random 64 --new gpt2  64 sizes between its smallest and its largest; `new_s` alone
  bench/sizes.py --random 40 --between 700 760 --new --alone gpt2  these sizes, in ours alone
  bench/sizes.py --device cpu bert_tiny  without a GPU
  bench/sizes.py --disable kept_partitions --alone gpt2  each size searched, without Inductor

For each size in turn: `new_s`, the seconds of the first backward of this size, with compiling, and
behind all sizes, the sides in turns, `ms`: of a backward of a size that was seen before, the median
of events around it. `own_ms`, of ours: the same with kernels that hold this size as literals, and
library calls that were timed for it, by a plan that was searched for it; Python runs these, and
`by_python_ms` is `ms` run so, too. Sizes are lengths of token lists, or numbers of images. The
first size's `new_s` holds what is compiled for all of them.

Of ours, too. `made`: the seconds in which the library made the programs of this size, by stage:
`plan` holds `plan_pattern`, `load` those that begin so; `own_made`: the same of `own_ms`'s program.
`host_ms`: the host's milliseconds of the first backward of this size (`call`), which hold those of
the size's graph (`bind`), of its program (`program`) and of the run (`run`). `seen_us`: the host's
microseconds of `loss.backward()` each time that the size comes again behind others, on an idle GPU
(`backward`), and of its parts, as bench/node.py has them, where it ran without Python;
`again_us`: right behind itself. `equal_bits`: whether gradients were then those of the first
backward of this size, from the same seed. `held`: the bytes that the process holds behind the first
backward of this size, of the host, and of the device beside PyTorch's allocator, and those that
the library says the programs hold together; `held_seen`: the same once all sizes came again.
`programs`: how many runs there were by which way, and
why recordings were not moved.

Needs torch, what models/zoo.py needs, and the library that `make build` leaves in build/release/bin.
"""

import argparse
import collections
import contextlib
import copy
import dataclasses
import gc
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("bench", "python", "models")]

import torch  # noqa: E402
from measure.one_model import machine  # noqa: E402
from retrograd import native  # noqa: E402
from retrograd.backend import (  # noqa: E402
    backend, compiled, dynamic, messages, programs, translation,
)  # fmt: skip
from retrograd.backend.node import extension  # noqa: E402
from run import commit, environment, slug_of_device, write_row  # noqa: E402

MODELS = {
    "gpt2": (512, 640, 733, 1000, 513, 999, 600, 977, 801),
    "bert_base": (384, 211, 500, 333, 256, 401, 489, 130),
    "llama_small": (1024, 2000, 1500, 777, 1801, 1111, 1999, 1333),
    "vit_small_b8": (8, 5, 16, 3, 32, 11, 27, 63),
    "mixer_b16": (16, 5, 32, 3, 21, 11, 27),
    "bert_tiny": (32, 20, 31, 7, 15, 28),
}
DEFAULT = ("gpt2", "bert_base", "llama_small", "vit_small_b8")
REPEAT = 15
ROUNDS = 3
SEEN_ROUNDS = 6
RUNS = ("runs", "replays", "moves", "recordings", "failed_recordings")
INSIDE = "--inside"  # the process that measures a model


class Side:
    """A compiled copy of a model."""

    def __init__(self, name, module, device, disable, by_python):
        self.name, self.module, self.device = name, copy.deepcopy(module), device
        self.error = ""  # why it measures no more
        options = {
            "require_full": True, "disable": list(disable), "direct_gradients": not by_python
        }  # fmt: skip
        ours = {"backend": backend, "options": options}
        self.run = torch.compile(self.module, dynamic=True, **(ours if name == "ours" else {}))

    def loss(self, args, kwargs, autocast):
        with torch.autocast(self.device, torch.bfloat16, enabled=autocast):
            result = self.run(*args, **kwargs)
        return result if isinstance(result, torch.Tensor) else result["loss"]

    def backward(self, loss):
        """Its milliseconds, by events on a GPU."""
        self.module.zero_grad()
        if self.device == "cpu":
            start = time.monotonic()
            loss.backward()
            return 1e3 * (time.monotonic() - start)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        loss.backward()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


class HostClock:
    """Host seconds that ours spends in its parts, from its first use on."""

    PARTS = (
        ("call", dynamic.DynamicBackward, "__call__"),
        ("bind", translation.Translation, "bind"),
        ("program", programs, "program_of"),
        ("run", native.Executable, "run_at"),
    )

    def __init__(self):
        self._seconds = collections.Counter()
        for part, owner, name in self.PARTS:
            setattr(owner, name, self._timed(part, getattr(owner, name)))

    def _timed(self, part, function):
        def timed(*args, **kwargs):
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._seconds[part] += time.perf_counter() - start

        return timed

    def take(self, unit):
        """What was spent since the last time, in parts of a second of so many to the second."""
        taken = {part: round(unit * took, 2) for part, took in self._seconds.items()}
        self._seconds.clear()
        return taken


@dataclasses.dataclass
class WithOwnKernels:
    """Has the runs of ours done by programs that are planned and made for their sizes alone."""

    made: dict = dataclasses.field(default_factory=dict)

    def __enter__(self):
        self.call = call = compiled.CompiledBackward.__call__
        made = self.made

        def own(backward, inputs):
            if id(backward) not in made:
                recipe = backward.recipe
                settings = dataclasses.replace(recipe.settings, sizes_vary=False)
                made[id(backward)] = compiled.CompiledBackward(
                    dataclasses.replace(recipe, settings=settings, graph=bytes(recipe.graph))
                )
            return call(made[id(backward)], inputs)

        compiled.CompiledBackward.__call__ = own

    def __exit__(self, *_):
        compiled.CompiledBackward.__call__ = self.call


@contextlib.contextmanager
def _by_python():
    """Backwards of ours are run by Python."""
    module = extension.loaded()
    if module is None:
        yield
        return
    module.watch(True)
    try:
        yield
    finally:
        module.watch(False)


def _sized(inputs, size, of_images):
    """The inputs with so many tokens, or images."""

    def take(value):
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        if of_images:
            return torch.cat([value] * -(-size // len(value)))[:size].contiguous()
        return value[:, :size].contiguous() if value.dim() > 1 else value

    args, kwargs = inputs
    return [take(a) for a in args], {name: take(value) for name, value in kwargs.items()}


def _stages(known):
    """Seconds of each stage of making the programs that are not among the known, and what else they
    tell of it."""
    seconds, told = collections.Counter(), collections.Counter()
    for program in programs.alive():
        if program not in known:
            said = program.executable.describe()
            seconds.update(said["seconds"])
            told.update({n: said[n] for n in ("plans", "spilling_kernels")})
            told["recording_ms"] += said.get("recording_us", 0) / 1e3
    return {stage: round(took, 5) for stage, took in (seconds + told).items()}


def _sizes(name, count, between):
    """The sizes of the model, or so many between two, by default its smallest and largest, the same in
    each run."""
    if count == 0:
        return MODELS[name]
    low, high = between or (min(MODELS[name]), max(MODELS[name]))
    return random.Random(count).sample(range(low, high + 1), min(count, high + 1 - low))


def _held(device):
    """Bytes that the process holds: of the host, of the device beside PyTorch's allocator, and what its
    programs are said to hold of both."""
    gc.collect()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    said = [program.executable.memory for program in programs.alive()]
    held = {
        "programs": len(said), "host": pages * os.sysconf("SC_PAGE_SIZE"), "device": 0,
        "said_host": sum(host for host, _ in said), "said_device": sum(own for _, own in said),
    }  # fmt: skip
    if device == "cuda":
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        held["device"] = total - free - torch.cuda.memory_reserved()
    return held


def _seeded_loss(side, size, inputs, autocast):
    """The same each time."""
    torch.manual_seed(size)
    return side.loss(*inputs, autocast)


def _digest(module):
    """Of the gradients' bits, for each parameter."""
    as_integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    sums = [g.view(as_integers[g.element_size()]).sum(dtype=torch.int64) for g in gradients]
    return [int(s) for s in sums]


def _host_us(side, inputs, autocast):
    """The host's microseconds of one backward of a size that was seen before, by parts."""
    loss = side.loss(*inputs, autocast)
    side.module.zero_grad()
    module = extension.loaded()
    if side.device == "cuda":
        torch.cuda.synchronize()
    before, count = (module.host_ns(), module.counts()[0]) if module else ({}, 0)
    start = time.monotonic_ns()
    loss.backward()
    end = time.monotonic_ns()
    parts = {"backward": end - start}
    if module and module.counts()[0] == count + 1:
        ran, done = module.last_run_ns()
        after = module.host_ns()
        parts |= {"in": ran - start} | {part: after[part] - before[part] for part in after}
        parts |= {"out": end - done}
    return {part: round(ns / 1e3, 1) for part, ns in parts.items()}


def _time_seen(side, sizes, rows, digests, autocast):
    """Adds the host's times of backwards of sizes that were seen before. digests: of their first
    gradients."""
    told = {size: {"seen_us": [], "again_us": []} for size in sizes}
    # The first backward of a graph, and the first of it with sizes that vary, may have read zeros that
    # later ones leave out: other programs.
    for size, inputs in itertools.islice(sizes.items(), 2):
        side.backward(_seeded_loss(side, size, inputs, autocast))
        digests[size] = _digest(side.module)
    for _ in range(SEEN_ROUNDS):
        for size, inputs in sizes.items():
            for where in ("seen_us", "again_us"):
                told[size][where].append(_host_us(side, inputs, autocast))
    for size, times in told.items():
        rows[size]["ours"] |= times
    for size, inputs in sizes.items():
        side.backward(_seeded_loss(side, size, inputs, autocast))
        rows[size]["ours"]["equal_bits"] = _digest(side.module) == digests[size]


def _ran():
    """How the programs of this process have run."""
    counts, reasons = collections.Counter(), set()
    for program in programs.alive():
        said = program.executable.describe()
        counts.update({n: said.get(n, 0) for n in RUNS})
        counts["recording_ms"] += said.get("recording_us", 0) / 1e3
        reasons |= {said["unmovable"]} if said.get("unmovable") else set()
    return {name: round(count, 1) for name, count in counts.items()} | {"why": sorted(reasons)}


def measure(name, device, count, between, only_new, disable, alone, by_python):
    """A row of the results. by_python: without autograd's node."""
    import zoo

    warnings.simplefilter("error", messages.BackwardFallsBack)
    if not by_python:
        extension.loaded(wait=True)  # it is compiled in the background
    module, args, kwargs = zoo.make(name, device)
    autocast = zoo.autocasts(name, device)
    of_images = name.startswith(("vit", "mixer"))
    names = ("ours",) if alone else ("ours", "inductor")
    sides = [Side(side, module, device, disable, by_python) for side in names]
    clock = HostClock()
    sizes = {size: _sized((args, kwargs), size, of_images) for size in _sizes(name, count, between)}
    rows = {size: {side: {} for side in ("ours", "inductor")} for size in sizes}
    digests = {}
    for size, inputs in sizes.items():
        for side in sides:
            if side.error:
                continue
            loss = _seeded_loss(side, size, inputs, autocast)
            if device == "cuda":
                torch.cuda.synchronize()
            known = set(programs.alive())
            clock.take(1e3)
            start = time.monotonic()
            try:
                side.backward(loss)
            except AssertionError as error:  # of Inductor's code, about its own strides
                side.error = str(error).splitlines()[0]
                continue
            rows[size][side.name]["new_s"] = round(time.monotonic() - start, 3)
            if side.name == "ours":
                rows[size]["ours"] |= {
                    "host_ms": clock.take(1e3), "made": _stages(known), "held": _held(device)
                }  # fmt: skip
                digests[size] = _digest(side.module)
        print(size, rows[size], file=sys.stderr, flush=True)
    _time_seen(sides[0], sizes, rows, digests, autocast)
    ran, held_seen = _ran(), _held(device)
    own = WithOwnKernels()
    for size, inputs in () if only_new else sizes.items():
        times = {"ours": [], "inductor": [], "own": [], "by_python": []}
        for _ in range(ROUNDS):
            for side in sides:
                for _ in range(0 if side.error else REPEAT):
                    times[side.name].append(side.backward(side.loss(*inputs, autocast)))
            with _by_python():
                for _ in range(REPEAT):
                    times["by_python"].append(sides[0].backward(sides[0].loss(*inputs, autocast)))
            with _by_python(), own:
                known = set(programs.alive())
                sides[0].backward(sides[0].loss(*inputs, autocast))
                if made := _stages(known):
                    rows[size]["ours"]["own_made"] = made
                for _ in range(REPEAT):
                    times["own"].append(sides[0].backward(sides[0].loss(*inputs, autocast)))
        median = {side: round(statistics.median(ms), 4) for side, ms in times.items() if ms}
        rows[size]["ours"] |= {
            "ms": median["ours"], "own_ms": median["own"], "by_python_ms": median["by_python"]
        }  # fmt: skip
        if "inductor" in median:
            rows[size]["inductor"]["ms"] = median["inductor"]
        print(size, rows[size], file=sys.stderr, flush=True)
    errors = {side.name: side.error for side in sides if side.error}
    sized = [{"size": size, **row} for size, row in rows.items()]
    row = {"model": name, "random": count, "sizes": sized, "programs": ran, "errors": errors}
    row |= {"held_seen": held_seen} | ({"between": list(between)} if between else {})
    return row | ({"disable": list(disable)} if disable else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=DEFAULT)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--commit", help="of the project, where it is no repository")
    parser.add_argument("--limit", type=int, default=900, help="seconds for a model")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="sizes, drawn")
    parser.add_argument(
        "--between", type=int, nargs=2, metavar=("LOW", "HIGH"), help="with --random"
    )
    parser.add_argument("--new", action="store_true", help="measure new sizes alone")
    parser.add_argument("--disable", action="append", default=[], help="as the backend's option")
    parser.add_argument("--alone", action="store_true", help="without Inductor's side")
    parser.add_argument("--by-python", action="store_true", help="without autograd's node")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in options.models:
        if name not in MODELS:
            parser.error(f"no model {name}: {', '.join(MODELS)}")
    if options.inside:
        (name,) = options.models
        row = measure(
            name, options.device, options.random, options.between, options.new, options.disable,
            options.alone, options.by_python,
        )  # fmt: skip
        row |= {"commit": options.commit or commit(), "machine": machine(options.device)}
        write_row(options.out, row)
        return
    path = options.out or ROOT / f"bench/results/sizes_{slug_of_device(options.device)}.json"
    rows = json.loads(path.read_text())["models"] if path.exists() else []
    for name in options.models:
        row = _measured_apart(name, options)
        if row is None:
            continue
        rows = [other for other in rows if _what(other) != _what(row)] + [row]
        write_row(path, {"command": "bench/sizes.py", "models": rows})


def _what(row):
    between = tuple(row.get("between", ()))
    return row["model"], row.get("random", 0), between, tuple(row.get("disable", ()))


def _measured_apart(name, options):
    """The row of a process of the model's own, with caches of its own; None where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "row.json"
        command = [sys.executable, __file__, name, INSIDE, "--device", options.device]
        command += ["--out", str(out), "--commit", options.commit or commit()]
        command += ["--random", str(options.random), *(["--new"] if options.new else [])]
        if options.between:
            command += ["--between", *map(str, options.between)]
        command += [part for name in options.disable for part in ("--disable", name)]
        command += ["--alone"] if options.alone else []
        command += ["--by-python"] if options.by_python else []
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "XDG_CACHE_HOME": folder}
        try:
            subprocess.run(command, check=True, timeout=options.limit, env=environment() | caches)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return None
        return json.loads(out.read_text())


if __name__ == "__main__":
    main()
