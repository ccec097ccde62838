#!/usr/bin/env python3
"""Backwards of single ops and of small graph networks: ours beside PyTorch's, on one GPU.

  bench/ops.py                              every op of bench/workloads/{op,fp8}_models.py
  bench/ops.py softmax_4096x12672 gat       two of them
  bench/ops.py max_pool:channels=24,edge=28 one at other sizes
  bench/ops.py --budget 600 --out FILE      as many as 600 seconds are enough for

Ours is the captured backward, deterministic, on the tensors that its forward saved. PyTorch's is
torch.autograd.grad on the loss of the same model, eager or compiled by Inductor, which keeps its
graph and repeats the backward alone: no gradient is accumulated, and the loss's gradient is given,
so that neither side fills it. Inductor's donated buffers are off, as a graph that is kept needs.

All sides run in turns. A sample is of as many runs, one behind the other, as fill 2 ms, issued
while the GPU spins; where the host cannot issue so many in time there are fewer. So inputs that L2
holds may be found there, on every side. `hidden`: whether the host was never waited for.

Each run of ours gets the integers of the one before, so that lists of sorted indices are kept.
With `--new-indices` it gets these and the same ones moved on by a place, by turns, each bound at an
address of its own. `--no-kept-indices` has lists sorted in each run.

`floor_bytes`: what the backward must move: those inputs of the captured graph that it reads, and
its gradients, each once and whole. A table of which few rows are read counts whole, too.
`floor_tb_s`: these bytes over the time of ours. `saved_bytes` of a side: what its backward is
given.

The file is written after every op. An op that it holds for this commit, these sides and such
indices is passed over without --again, whatever became of it.

Needs torch, a GPU, and the library that `make build` leaves in build/release/bin; no network.
"""

import argparse
import contextlib
import gc
import itertools
import json
import math
import os
import pathlib
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("bench", "python", "models")]

from run import commit, environment, missing, slug_of_device, write_row  # noqa: E402

FORMAT = 1  # of the file
SAMPLE_MS = 2  # of one sample at least
REPEAT = 15
MOST_RUNS = 200  # in a sample
MOST_HIDING_MS = 300
CYCLES_A_MS = 2_000_000  # of a GPU, about
STEPS = 6  # of ours, that are listed
SIDES = {"ours": None, "inductor": {}, "eager": None, "max_autotune": {"max_autotune": True}}
INSIDE = "--inside"  # the process that measures
DEFAULT_SIDES = "ours,inductor,eager"


class OutOfTime(BaseException):
    """The time of an op or of the run is over. No Exception: compilers turn those into others."""


@contextlib.contextmanager
def within(seconds):
    """What runs inside is left with OutOfTime when so many seconds have passed, or those of a
    `within` outside."""

    def stop(*_):
        raise OutOfTime

    begin = time.monotonic()
    handler, outer = signal.signal(signal.SIGALRM, stop), signal.getitimer(signal.ITIMER_REAL)[0]
    signal.setitimer(signal.ITIMER_REAL, max(min(seconds, outer or seconds), 1e-3))
    try:
        yield
    finally:
        left = max(outer - (time.monotonic() - begin), 1e-3) if outer else 0
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, handler)


class Sampled:
    """A side's work, and how it is sampled: so many runs behind so long a spin."""

    def __init__(self, work):
        from measure import watch

        self.work, self.runs, self.hiding_ms, self.hidden = work, 1, 1, True
        self.samples = []
        for _ in range(3):
            work()
        watch.synchronize()
        self.fit()

    def fit(self):
        """Chooses the runs; fewer where the host is late or the GPU's queue is full."""
        self.hiding_ms = 20
        one_ms, host_ms = self.sample()
        self.runs = min(max(math.ceil(SAMPLE_MS / max(one_ms, 1e-3)), 1), MOST_RUNS)
        while True:
            self.hiding_ms = min(2 + 2 * host_ms * self.runs, MOST_HIDING_MS)
            self.hidden = True
            self.sample()
            if self.hidden or self.runs == 1:
                return
            self.runs //= 2

    def sample(self):
        """(milliseconds of a run, the host's); on a CPU, which hides nothing, both are the same."""
        import torch

        if not torch.cuda.is_available():
            begin = time.perf_counter()
            for _ in range(self.runs):
                self.work()
            ms = (time.perf_counter() - begin) * 1e3 / self.runs
            return ms, ms
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(int(self.hiding_ms * CYCLES_A_MS))
        begin.record()
        issuing = time.perf_counter()
        for _ in range(self.runs):
            self.work()
        issued = time.perf_counter()
        end.record()
        self.hidden &= not begin.query()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / self.runs, (issued - issuing) * 1e3 / self.runs

    def figures(self):
        from measure import watch

        return watch.summary(self.samples) | {"runs_each": self.runs, "hidden": self.hidden}


def in_turns(works, repeat):
    """The figures of each of `works`, by its name."""
    sampled = {name: Sampled(work) for name, work in works.items()}
    for _ in range(repeat):
        for side in sampled.values():
            side.samples.append(side.sample()[0])
    return {name: side.figures() for name, side in sampled.items()}


class Op:
    """One op: its sides are prepared one after the other, then run in turns."""

    def __init__(self, name, options, row):
        self.name, self.options, self.row = name, options, row
        self.works, self.stack = {}, contextlib.ExitStack()

    def measure(self):
        import torch
        from workloads import op_models

        captured = op_models.capture(self.name, self.options.device)
        self.row["tensors"] = [_text(i.shape, i.dtype) for i in captured.inputs]
        self.row["gradients"] = [
            _text(o.node.meta["val"].shape, o.dtype) for o in captured.outputs if o.node is not None
        ]
        self.row["floor_bytes"] = floor_bytes(captured)
        if "ours" in self.options.sides:
            self.row["ours"] = self.attempt(lambda: self.our_side(captured))
        if self.options.device == "cuda":
            torch.cuda.empty_cache()
        for side in self.options.sides:
            if side != "ours":
                self.row[side] = self.attempt(lambda: self.their_side(side))
        for side, figures in in_turns(self.works, self.options.repeat).items():
            self.row[side]["gpu_ms"] = figures
        for side, work in self.works.items():
            self.row[side]["kernels"] = _kernels(work)
        if "ours" in self.works:
            self.row["ours"]["steps"] = _steps(self.backward)

    def attempt(self, prepare):
        """What a side says of itself, or why it cannot run."""
        from measure import ours
        from retrograd.errors import ExportError

        begin = time.monotonic()
        try:
            with within(self.options.most):
                return prepare() | {"preparing_s": round(time.monotonic() - begin, 2)}
        except (ours.Refused, ExportError) as error:
            return {"refused": str(error)}
        except OutOfTime:
            if time.monotonic() >= self.options.until:
                raise
            return {"failed": f"not prepared in {self.options.most:g} s"}
        except Exception as error:
            _raise_if_lost(error)
            return {"failed": f"{type(error).__name__}: {error}"[:2000]}

    def our_side(self, captured):
        import torch
        from measure import float64, one_model, ours, pytorch, watch
        from retrograd.atomic_file import write_atomically
        from retrograd.translate import translate

        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="retrograd_ops_"))
        path = pathlib.Path(folder, f"{self.name}.bwd.pb")
        graph, constants = translate(captured, self.name)
        write_atomically(path, graph.SerializeToString(deterministic=True))
        tensors = [i.recorded for i in captured.inputs]
        device = tensors[0].device
        tensors += [t.to(device) for t in constants.values()]
        where = "host" if self.options.device == "cpu" else "cuda"
        known = {"spec": self.options.spec} if self.options.spec else {}
        if self.options.no_kept_indices:
            known["keep_sorted_indices"] = False
        backward = self.stack.enter_context(
            ours.Backward(self.options.library, path, where, deterministic=True,
                          cache_dir=f"{folder}/cache", **known)
        )  # fmt: skip
        backward.bind(tensors, ours.room_for(captured.outputs, device))
        for gradient in backward.gradients:  # what is not written shows
            if gradient is not None and gradient.is_floating_point():
                gradient.fill_(float("nan"))
        backward.run()
        watch.synchronize()
        result = {"saved_bytes": pytorch.inputs_of(captured.fx_graph.owning_module)["bytes"]}
        try:
            references, theirs = float64.gradients(captured), [o.recorded for o in captured.outputs]
            result["errors"] = one_model.worst_error(backward.gradients, references, captured)
            result["op_by_op_errors"] = one_model.worst_error(theirs, references, captured)
            del references, theirs
        except float64.NoReference as error:
            result["no_reference"] = str(error)
        except torch.cuda.OutOfMemoryError:
            result["no_reference"] = "float64 does not fit the GPU's memory"
        result["unequal_gradients_of_4_runs"] = _unequal(backward)
        said = backward.describe()
        shown = ("groups", "plans", "spilling_kernels", "digest", "peak_bytes")
        result |= {name: said[name] for name in shown}
        result["predicted_ms"] = said["predicted_us"] / 1e3
        result["launches"] = said["kernels"]
        self.backward, self.works["ours"] = backward, backward.run
        if self.options.new_indices:
            self.works["ours"] = _with_new_indices(backward)
        return result

    def their_side(self, side):
        import torch
        from measure import pytorch
        from workloads import op_models

        torch._dynamo.reset()
        model, args = op_models.make(self.name, self.options.device)
        seen, call = [], model
        if SIDES[side] is not None:
            call = torch.compile(
                model, backend=lambda *given: pytorch.inductor(SIDES[side], seen, *given)
            )
        with op_models.autocast(self.name, self.options.device):
            loss = call(*args)
        wanted = [t for t in (*model.parameters(), *args) if t.requires_grad]
        one = torch.ones_like(loss)

        def work():
            torch.autograd.grad(loss, wanted, one, retain_graph=True)

        work()
        self.works[side] = work
        if not seen:
            return {}
        return {"backwards": len(seen), "saved_bytes": sum(s["bytes"] for s in seen)}


def _with_new_indices(backward):
    """Runs of a bound backward on other inputs, whose integers have moved on by a place, and on its
    own, by turns."""
    import torch

    def moved(tensor):
        if tensor.dtype.is_floating_point or tensor.dtype == torch.bool:
            return tensor
        return tensor.flatten().roll(1).view_as(tensor)

    both = itertools.cycle([[moved(t) for t in backward.inputs], backward.inputs])
    gradients = backward.gradients

    def run():
        backward.bind(next(both), gradients)
        backward.run()

    return run


def _text(shape, dtype):
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def floor_bytes(captured):
    """The bytes of all inputs that the backward reads and of all gradients, each once."""

    def size(tensor):
        return tensor.numel() * tensor.element_size()

    read = sum(size(i.recorded) for i in captured.inputs if i.node.users)
    written = {o.node: size(o.recorded) for o in captured.outputs if o.node is not None}
    return read + sum(n for node, n in written.items() if node.op != "placeholder")


def _unequal(backward):
    """How many gradients have other bits in one of three further runs."""
    from measure import one_model, watch

    first = [None if g is None else g.clone() for g in backward.gradients]
    unequal = set()
    for _ in range(3):
        backward.run()
        watch.synchronize()
        pairs = enumerate(zip(first, backward.gradients))
        unequal |= {i for i, (a, b) in pairs if not one_model.same_bits(a, b)}
    return len(unequal)


def _kernels(work):
    """What one run of a side launches, as the framework's profiler sees it."""
    from measure import watch

    return watch.kernels(lambda: None, work, most=4)


def _steps(backward):
    """The first kernels and calls of ours, each alone, and how many there are."""
    steps = backward.time_steps(5)
    names = ("kind", "ops", "measured_us", "predicted_us", "m", "n", "k", "batch")
    shown = [{k: step[k] for k in names if k in step} for step in steps[:STEPS]]
    return {"count": len(steps), "first": shown}


def _raise_if_lost(error):
    """A GPU that a kernel has faulted on runs nothing more in this process."""
    from measure import watch

    try:
        watch.synchronize()
    except Exception:
        raise SystemExit(f"bench/ops.py: the GPU is lost to this process: {error}") from error


def measure(name, options):
    """The row of one op; OutOfTime if the run's time is over before."""
    import torch
    from measure import one_model

    row = {"op": name, "commit": options.commit, "sides": options.sides}
    row["indices"] = indices_of(options)
    begin = time.monotonic()
    op = Op(name, options, row)
    try:
        with op.stack:
            op.measure()
        row |= _verdict(row, options.sides)
    except ImportError as error:
        row |= {"status": "skipped", "reason": f"{error.name} is not installed"}
    except OutOfTime:
        raise
    except Exception as error:
        refused = type(error).__name__ == "ExportError"
        row |= {"status": "refused" if refused else "failed", "reason": str(error)[:2000]}
        if not refused:
            _raise_if_lost(error)
    row["machine"] = one_model.machine(options.device)
    row["seconds"] = round(time.monotonic() - begin, 1)
    del op
    torch._dynamo.reset()
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()
    return row


def _verdict(row, sides):
    """Whether ours ran, why not, and its time over the best of PyTorch's."""
    times = {s: row[s]["gpu_ms"]["median"] for s in sides if "gpu_ms" in row[s]}
    if "ours" in sides and "ours" not in times:
        status = "refused" if "refused" in row["ours"] else "failed"
        return {"status": status, "reason": row["ours"][status]}
    verdict, mine = {"status": "measured"}, times.pop("ours", None)
    if mine:
        verdict["floor_tb_s"] = row["floor_bytes"] / mine / 1e9
    if times:
        verdict["best"] = min(times, key=times.get)
        verdict |= {"ratio": mine / times[verdict["best"]]} if mine else {}
    return verdict


def summary(row):
    """One line on a row."""
    if row["status"] != "measured":
        return f"{row['op']}: {row['status']}: {row['reason']}"
    parts = []
    for side in row["sides"]:
        said = row[side]
        us = f"{said['gpu_ms']['median'] * 1e3:.1f} us" if "gpu_ms" in said else "failed"
        late = "" if "gpu_ms" not in said or said["gpu_ms"]["hidden"] else " (host seen)"
        parts.append(f"{side} {us}{late}")
    text = f"{row['op']}: {', '.join(parts)}"
    if "ratio" in row:
        text += f"; {row['ratio']:.3f} of {row['best']}"
    if "floor_tb_s" in row:
        predicted = row["ours"]["predicted_ms"] * 1e3
        text += f"; {row['floor_tb_s']:.2f} TB/s, predicted {predicted:.1f} us"
        text += f"; error {row['ours'].get('errors', {}).get('worst', math.nan):.2g}"
    if row.get("ours", {}).get("unequal_gradients_of_4_runs"):
        text += "; UNEQUAL BITS"
    return f"{text}; {row['seconds']:.0f} s"


def rows_of(path):
    """The rows of a file by their ops; none of what is no such file."""
    try:
        found = json.loads(path.read_text())
        return {r["op"]: r for r in found["ops"]} if found["format"] == FORMAT else {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def indices_of(options):
    """What integers runs of ours get, and whether sorted lists of them are kept: "same, kept"."""
    kept = "sorted in each run" if options.no_kept_indices else "kept"
    return f"{'new' if options.new_indices else 'same'}, {kept}"


def _key_of(row):
    return row.get("commit"), row.get("sides"), row.get("indices", "same, kept")


def run(names, options, one=measure):
    """Measures what the file does not hold yet; returns the ops that time was too short for."""
    rows, longest = rows_of(options.out), 0.0
    options.until = time.monotonic() + options.budget
    key = (options.commit, options.sides, indices_of(options))
    for at, name in enumerate(names):
        known = rows.get(name, {})
        if not options.again and _key_of(known) == key:
            continue
        begin = time.monotonic()
        if options.until - begin <= longest / 2:
            return names[at:]
        try:
            with within(options.until - begin):
                rows[name] = one(name, options)
        except OutOfTime:
            return names[at:]
        longest = max(longest, time.monotonic() - begin)
        write_row(options.out, {"format": FORMAT, "ops": list(rows.values())})
        print(summary(rows[name]), flush=True)
    return []


def parsed(arguments):
    from workloads import op_models

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help=f"of bench/workloads/op_models.py, with {op_models.TINY} behind it for "
                        "the small sizes or :SIZE=NUMBER,.. for others; default: all")  # fmt: skip
    parser.add_argument("--sides", default=DEFAULT_SIDES, help=f"of {', '.join(SIDES)}; default: "
                        f"{DEFAULT_SIDES}")  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="default: bench/results/ops_ and the GPU's name")  # fmt: skip
    parser.add_argument("--commit", help="noted in the file; default: git's")
    parser.add_argument("--budget", type=float, default=3600, metavar="SECONDS")
    parser.add_argument("--most", type=float, default=120, metavar="SECONDS",
                        help="in which a side of an op must be prepared")  # fmt: skip
    parser.add_argument("--repeat", type=int, default=REPEAT, help="samples of each side")
    parser.add_argument("--again", action="store_true", help="measure what has been measured, too")
    parser.add_argument("--new-indices", action="store_true",
                        help="no run of ours has the integers of the one before")  # fmt: skip
    parser.add_argument("--no-kept-indices", action="store_true",
                        help="ours sorts indices in each run")  # fmt: skip
    parser.add_argument("--library", help="libretrograd.so, if it is somewhere else")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu tries the script; the times mean nothing")  # fmt: skip
    parser.add_argument("--spec", default="", help="what ours is planned for; default: the device")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.sides = [s for s in options.sides.split(",") if s]
    unknown = [side for side in options.sides if side not in SIDES]
    if unknown:
        parser.error(f"no {unknown[0]!r}; there are {', '.join(SIDES)}")
    for name in options.names:
        try:
            op_models.check(name)
        except ValueError as error:
            parser.error(str(error))
    options.names = options.names or list(op_models.ALL)
    return options


def main():
    if INSIDE not in sys.argv:  # libraries are looked for where the process was told when it began
        os.execve(sys.executable, [sys.executable, __file__, *sys.argv[1:], INSIDE], environment())
    options = parsed(sys.argv[1:])
    why = missing(options.device)
    if why:
        sys.exit(f"bench/ops.py: {why}; it measures on a machine with an NVIDIA GPU")
    import torch._functorch.config
    from measure import ours

    torch._functorch.config.donated_buffer = False
    try:
        options.library = ours.find_library(options.library)
    except FileNotFoundError as error:
        sys.exit(f"bench/ops.py: {error}")
    if options.out is None:
        options.out = ROOT / f"bench/results/ops_{slug_of_device(options.device)}.json"
    options.commit = commit() if options.commit is None else options.commit
    left = run(options.names, options)
    if left:
        print(f"the time was too short for {', '.join(left)}")


if __name__ == "__main__":
    sys.exit(main())
