#!/usr/bin/env python3
"""The backward of single convolutions, ours beside ATen's, on one GPU and in one process.

  bench/convolutions.py                      all of bench/data/convolutions.csv, bf16, channels last
  bench/convolutions.py --dtype fp32 --layout nchw
  bench/convolutions.py --minutes 6          what is left by then, the next call measures
  bench/convolutions.py --table FILE         prints the table of a result

Ours is the program that is made of what the exporter translates ATen's op to; it repeats its bits.
Each of cuDNN's plans for a call is timed when the program is loaded (--cudnn-plans N bounds how
many). ATen's is aten.convolution_backward with cudnn.benchmark, once with deterministic algorithms
alone and once with any. Where the convolution multiplies each pixel by one matrix, ours is measured
in its other form, too: as matmuls where the exporter leaves a convolution, as a convolution where
it makes matmuls. The side ours_without_boxes has none of the kernels whose operands a copy engine
loads by boxes. Work of each side is captured as a CUDA graph that does it many times; the graphs
are replayed in turn, the host hidden, and the medians are those of the time of one repetition. The
operands stay where they are, in the caches, on all sides. There is no bias: its gradient is a sum.

Needs torch, a GPU, and the library that `make build` leaves in build/release/bin; no network.
"""

import argparse
import contextlib
import datetime
import gc
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("bench", "python", "models")]

import run  # noqa: E402
from workloads.convolution_graphs import exported, read_shapes, text_of  # noqa: E402

SHAPES = ROOT / "bench/data/convolutions.csv"
FORMAT = 1           # of the files; others are measured again
REPLAY_US = 1000     # of work in a captured graph, about
MOST_REPEATS = 200   # of the work in it
HIDING_CYCLES = 600_000  # about 0.3 ms: longer than the host takes to launch a captured graph
MARGIN = 1.02        # above it a row is listed apart
# An error above both, the first in errors of ATen's, is no rounding.
WRONG_TIMES, WRONG_ERROR = 10, 1e-4
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
# The sides by whether their algorithms repeat their bits.
ATEN = {"aten_deterministic": True, "aten": False}
OURS = {
    "ours": True, "ours_without_boxes": True, "ours_other_form": True,
    "ours_nondeterministic": False,
}  # fmt: skip
WITHOUT = {"ours_without_boxes": ["image_boxes"]}  # features that a side has not


class Case:
    """A convolution's operands on the device, and both sides' work on them."""

    def __init__(self, shape, options):
        import torch

        self.shape, self.options, self.torch = shape, options, torch
        torch.manual_seed(0)
        dtype = getattr(torch, DTYPES[options.dtype])
        layout = torch.channels_last if options.layout == "nhwc" else torch.contiguous_format

        def drawn(extents):
            tensor = torch.randn(extents, device=options.device).to(dtype)
            return tensor.contiguous(memory_format=layout)

        self.dy, self.x, self.w = (drawn(e) for e in (shape.y, shape.x, shape.weight))
        self.dx, self.dw = torch.empty_like(self.x), torch.empty_like(self.w)

    def aten(self, dy, x, w):
        s = self.shape
        results = self.torch.ops.aten.convolution_backward(
            dy, x, w, None, s.stride, s.padding, s.dilation, False, [0, 0], s.groups,
            [s.needs_dx, True, False],
        )  # fmt: skip
        return [g for g in results[:2] if g is not None]

    def aten_work(self, deterministic):
        def work():
            with self.flags(deterministic, benchmark=True):
                self.aten(self.dy, self.x, self.w)

        return work

    @contextlib.contextmanager
    def flags(self, deterministic, benchmark):
        with self.torch.backends.cudnn.flags(
            enabled=True, benchmark=benchmark, deterministic=deterministic,
            allow_tf32=self.options.tf32, benchmark_limit=self.options.aten_plans,
        ):  # fmt: skip
            yield

    def references(self):
        """The gradients in float64."""
        with self.flags(True, benchmark=False):
            return self.aten(*(t.double() for t in (self.dy, self.x, self.w)))

    def bind(self, backward):
        backward.bind([self.dy, self.x, self.w], self.gradients())

    def names(self):
        return ["dx", "dw"] if self.shape.needs_dx else ["dw"]

    def gradients(self):
        return ([self.dx] if self.shape.needs_dx else []) + [self.dw]


def _error(torch, gradients, references):
    """The larger one of ||g - ref|| / ||ref||; NaN where there is one."""
    errors = [(g.double() - r).norm() / r.norm() for g, r in zip(gradients, references)]
    return torch.stack(errors).max().item()


def _same_bits(backward, gradients):
    """Whether three runs give the bits of the first."""
    backward.run()
    first = [g.clone() for g in gradients]
    same = True
    for _ in range(3):
        backward.run()
        same &= all(bool((a == b).all()) for a, b in zip(first, gradients))
    return same


def _made_by(text):
    """The first line, which says who makes a call, and the plan of cuDNN that was taken."""
    lines = text.splitlines() or [""]
    plan = re.match(r"cuDNN, plan (\d+) of \d+$", lines[0])
    return lines[0] + (f":{lines[int(plan[1])]}" if plan else "")


def _beside(text):
    """What else could make the call: name and time of each, as they were measured to choose."""
    return [
        line.strip() for line in text.splitlines()[1:]
        if re.match(r"  (cudnn|kernels of ours)", line)
    ]  # fmt: skip


class Timer:
    """The time of one repetition of some work, in microseconds."""

    def __init__(self, torch, device):
        self.torch, self.on_gpu = torch, device == "cuda"

    def _replayed(self, replay, hidden):
        """The microseconds of one replay."""
        if not self.on_gpu:
            begin = time.perf_counter()
            replay()
            return 1e6 * (time.perf_counter() - begin)
        cuda = self.torch.cuda
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda.synchronize()
        cuda._sleep(hidden)
        begin.record()
        replay()
        end.record()
        cuda.synchronize()
        return 1e3 * begin.elapsed_time(end)

    def estimate(self, work):
        """Of one call, as the host issues it."""
        work()
        return min(self._replayed(work, 4 * HIDING_CYCLES) for _ in range(3))

    def capture(self, work, repeats):
        """What replays the work so often."""
        if not self.on_gpu:
            return lambda: [work() for _ in range(repeats)]
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for _ in range(repeats):
                work()
        return graph.replay

    def in_turn(self, works, repeats, rounds):
        """{side: figures} of works that take turns, each round in another order."""
        replays = {side: self.capture(work, repeats) for side, work in works.items()}
        for replay in replays.values():
            replay()
        samples = {side: [] for side in works}
        sides = list(works)
        for i in range(rounds):
            for side in sides[i % len(sides) :] + sides[: i % len(sides)]:
                microseconds = self._replayed(replays[side], HIDING_CYCLES)
                samples[side].append(microseconds / repeats)
        return {
            side: {"median": statistics.median(s), "least": min(s), "most": max(s)}
            for side, s in samples.items()
        }


class Opener:
    """Loads programs of ours: those that repeat their bits on one device, the others on another."""

    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.anchors = {}  # the first program of each kind, which keeps the device
        self.others = []

    def open(self, side, graph):
        """graph: the bytes of a message, or text."""
        from measure import ours

        path = self.folder / ("graph.bwd.pb" if isinstance(graph, bytes) else "graph.rgt")
        path.write_bytes(graph if isinstance(graph, bytes) else graph.encode())
        device = "cuda" if self.options.device == "cuda" else "host"
        more = {"convolution_plans": self.options.cudnn_plans, "deterministic": OURS[side],
                "disable": WITHOUT.get(side, [])}  # fmt: skip
        if self.options.cache_dir:
            more["cache_dir"] = self.options.cache_dir
        anchor = self.anchors.get(OURS[side])
        backward = ours.Backward(self.options.library, path, device, beside=anchor, **more)
        if anchor is None:
            self.anchors[OURS[side]] = backward
        else:
            self.others.append(backward)
        return backward

    def close_others(self):
        while self.others:
            self.others.pop().close()

    def close(self):
        self.close_others()
        for backward in self.anchors.values():
            backward.close()


def _graphs(case, options):
    """{side of ours: its graph}, without a second form for what has only one."""
    with case.flags(True, benchmark=False):
        made = exported(case, case.aten(case.dy, case.x, case.w), options.tf32)
    message = made.SerializeToString(deterministic=True)
    graphs = dict.fromkeys(("ours", "ours_without_boxes", "ours_nondeterministic"), message)
    if case.shape.is_pointwise:
        matmuls = not any(node.op == "matmul" for node in made.nodes)
        graphs["ours_other_form"] = text_of(
            case.shape, options.dtype, options.layout == "nhwc", matmuls, options.tf32
        )
    return graphs


def measure(shape, options, opener, timer):
    """The figures of one convolution."""
    begin = time.perf_counter()
    case = Case(shape, options)
    references = case.references()
    works, errors, calls, seconds, equal = {}, {}, {}, {}, {}
    graphs = _graphs(case, options)
    for side in options.sides:
        started = time.perf_counter()
        if side in OURS:
            if side not in graphs:
                continue
            backward = opener.open(side, graphs[side])
            case.bind(backward)
            for gradient in case.gradients():
                gradient.fill_(float("nan"))
            equal[side] = _same_bits(backward, case.gradients())
            errors[side] = _error(case.torch, case.gradients(), references)
            calls[side] = [
                {"op": c["op"], "by": _made_by(c["by"]), "beside": _beside(c["by"])}
                for c in backward.describe()["calls"]
            ]
            works[side] = backward.run
        else:
            works[side] = case.aten_work(ATEN[side])
            with case.flags(ATEN[side], benchmark=True):
                errors[side] = _error(
                    case.torch, case.aten(case.dy, case.x, case.w), references
                )
        seconds[side] = round(time.perf_counter() - started, 3)
    least = min(timer.estimate(work) for work in works.values())
    repeats = max(1, min(MOST_REPEATS, round(REPLAY_US / max(least, 1e-3))))
    figures = timer.in_turn(works, repeats, options.rounds)
    del references, works, case
    gc.collect()
    return {
        "us": figures, "repeats": repeats, "errors": errors, "equal_bits": equal, "calls": calls,
        "ready_s": seconds, "total_s": round(time.perf_counter() - begin, 3),
    }  # fmt: skip


def measure_all(shapes, options, result, save, measure_one, clock=time.monotonic):
    """Measures what `result` has not yet, as long as the time lasts: a row is begun if the longest
    so far would still fit. Saves after each. How many are left."""
    known = {row["shape"] for row in result["rows"]}
    missing = [(s, models) for s, models in shapes.items() if s.name() not in known]
    begin = clock()
    longest = 0.0
    for i, (shape, models) in enumerate(missing):
        started = clock()
        if started - begin + longest > 60 * options.minutes:
            return len(missing) - i
        row = {"shape": shape.name(), "models": models, **measure_one(shape)}
        result["rows"].append(row)
        save(result)
        longest = max(longest, clock() - started)
        print(f"{clock() - begin:6.1f} s  {line_of(row)}", flush=True)
    return 0


def wrong_sides(row):
    """The sides of ours that compute something else: then no time of theirs says anything."""
    errors = row.get("errors", {})
    theirs = [errors[s] for s in ATEN if math.isfinite(errors.get(s, math.nan))]
    most = max([WRONG_ERROR, *(WRONG_TIMES * error for error in theirs)])
    return [side for side in OURS if side in errors and not errors[side] <= most]


def told_wrong(row):
    """Which sides are wrong, with their errors; empty: none."""
    return ", ".join(f"{side} {row['errors'][side]:.1e}" for side in wrong_sides(row))


def ratios(row):
    """Ours / ATen's deterministic side, ours / the faster of its sides; None where missing."""
    us = {side: figures["median"] for side, figures in row.get("us", {}).items()}
    theirs = [us[side] for side in ATEN if side in us]
    if "ours" not in us or not theirs:
        return None, None
    same = us.get("aten_deterministic")
    return same and us["ours"] / same, us["ours"] / min(theirs)


def line_of(row):
    if "failed" in row:
        return f"{row['shape']}: FAILED: {row['failed']}"
    if told_wrong(row):
        return f"{row['shape']}: WRONG, error of {told_wrong(row)}"
    times = ", ".join(f"{side} {f['median']:.2f}" for side, f in row["us"].items())
    return f"{row['shape']}: {times} us"


def forms(rows):
    """[(time as matmuls / time as convolutions, row)] of those that were measured as both."""
    pairs = []
    for row in rows:
        us = {side: figures["median"] for side, figures in row.get("us", {}).items()}
        if "ours" in us and "ours_other_form" in us:
            ratio = us["ours"] / us["ours_other_form"]
            matmuls = any(call["op"] == "matmul" for call in row["calls"]["ours"])
            pairs.append((ratio if matmuls else 1 / ratio, row))
    return pairs


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def gradients(rows):
    """[(whether kernels of ours make it, their time / cuDNN's fastest plan's)] of the gradients of
    convolutions that both were timed for, as they raced."""
    found = []
    for row in rows:
        for call in row.get("calls", {}).get("ours", []):
            lines = [call.get("by", ""), *call.get("beside", [])]
            us = {True: [], False: []}
            for line in lines:
                if at := re.search(r": ([\d.]+) us", line):
                    us[line.startswith("kernels of ours")].append(float(at[1]))
            if call["op"].startswith("convolution") and us[True] and us[False]:
                chosen = call["by"].startswith("kernels of ours")
                found.append((chosen, min(us[True]) / min(us[False])))
    return found


def gradients_summary(rows):
    """A line on how often kernels of ours make a gradient, and what they win there."""
    raced = gradients(rows)
    ratios_of_ours = [ratio for chosen, ratio in raced if chosen]
    if not ratios_of_ours:
        return "gradients by kernels of ours: none"
    return (
        f"gradients by kernels of ours: {len(ratios_of_ours)} of {len(raced)}, there ours / "
        f"cuDNN's fastest plan: geometric mean {geometric_mean(ratios_of_ours):.3f}, worst "
        f"{max(ratios_of_ours):.3f}"
    )


def summary(name, pairs):
    """A line on [(ratio, row)]."""
    pairs = [(r, row) for r, row in pairs if r is not None]
    if not pairs:
        return f"{name}: nothing measured"
    worst, row = max(pairs, key=lambda pair: pair[0])
    above = [row for r, row in pairs if r > MARGIN]
    mean = geometric_mean([r for r, _ in pairs])
    return (
        f"{name}: geometric mean {mean:.3f}, worst {worst:.3f} ({row['shape']}), "
        f"{len(above)} of {len(pairs)} above {MARGIN}"
    )


def by_model(rows):
    """{model: (ours, ATen deterministic, the faster of ATen's)}, its convolutions' sums in us."""
    sums = {}
    for row in rows:
        us = {side: f["median"] for side, f in row.get("us", {}).items()}
        theirs = [us[side] for side in ATEN if side in us]
        if "ours" not in us or not theirs:
            continue
        times = us["ours"], us.get("aten_deterministic", math.nan), min(theirs)
        for model, count in row["models"].items():
            before = sums.get(model, (0.0, 0.0, 0.0))
            sums[model] = tuple(b + count * t for b, t in zip(before, times))
    return sums


def table(result):
    """As Markdown."""
    m = result["machine"]
    lines = [
        f"{m['device']}, driver {m.get('driver', '-')}, PyTorch {m['pytorch']}, cuDNN "
        f"{m.get('cudnn', '-')}, commit {result['key']['commit']}; {result['key']['dtype']}, "
        f"{result['key']['layout']}; `{result['command']}`, {result['unit']}",
        "",
        "| convolution | ours | ATen deterministic | ATen | ours / deterministic | ours / faster "
        "| error: ours, ATen | bits equal | made by |",
        "|---" * 9 + "|",
    ]
    for row in result["rows"]:
        if "failed" in row:
            lines.append(f"| {row['shape']} | {row['failed']} |" + " |" * 7)
            continue
        us = {side: f["median"] for side, f in row["us"].items()}
        cells = [f"{us[s]:.2f}" if s in us else "-" for s in ("ours", *ATEN)]
        cells += [f"{r:.3f}" if r else "-" for r in ratios(row)]
        theirs = [row["errors"][s] for s in ATEN if s in row["errors"]]
        mine = row["errors"].get("ours", math.nan)
        cells.append(f"{mine:.1e}, {max(theirs, default=math.nan):.1e}")
        cells.append("yes" if row["equal_bits"].get("ours") else "NO")
        makers = dict.fromkeys(c["by"].split(",")[0] for c in row["calls"].get("ours", []))
        cells.append(", ".join(makers) or "-")
        lines.append(f"| {row['shape']} | {' | '.join(cells)} |")
    right = [row for row in result["rows"] if not wrong_sides(row)]
    pairs = [(ratios(row), row) for row in right]
    lines += [
        "",
        summary("ours / ATen deterministic", [(r[0], row) for r, row in pairs]),
        summary("ours / ATen, the faster side", [(r[1], row) for r, row in pairs]),
        summary("pointwise ones as matmuls / as convolutions", forms(right)),
        gradients_summary(right),
        *(f"WRONG, and left out above: {row['shape']}, error of {told_wrong(row)}"
          for row in result["rows"] if wrong_sides(row)),
        "",
        "| model, all of them | ours, us | ATen deterministic | ATen, the faster of each |",
        "|---|---|---|---|",
    ]
    for model, times in by_model(right).items():
        lines.append(f"| {model} | {' | '.join(f'{t:.0f}' for t in times)} |")
    return "\n".join(lines)


def load_or_begin(path, key, options, machine):
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError):
        result = None
    if not options.again and isinstance(result, dict) and result.get("key") == key:
        return result
    return {
        "what": "Backward of single convolutions: gradients of input and weight, ours and ATen's.",
        "command": " ".join(["bench/convolutions.py", *options.arguments]),
        "key": key,
        "machine": machine,
        "date": datetime.date.today().isoformat(),
        "unit": f"us, medians of {options.rounds}",
        "rows": [],
    }


def measure_here(options):
    import torch
    from measure import one_model
    from measure.ours import Refused

    options.tf32 = options.dtype == "fp32" and not options.no_tf32
    key = {
        "format": FORMAT, "commit": run.commit() if options.commit is None else options.commit,
        "dtype": options.dtype, "layout": options.layout, "sides": options.sides,
        "tf32": options.tf32, "rounds": options.rounds, "cudnn_plans": options.cudnn_plans,
        "aten_plans": options.aten_plans,
    }  # fmt: skip
    shapes = read_shapes(options.shapes)
    if options.first:
        shapes = dict(list(shapes.items())[: options.first])
    result = load_or_begin(options.out, key, options, one_model.machine(options.device))
    timer = Timer(torch, options.device)
    with tempfile.TemporaryDirectory(prefix="retrograd_convolutions_") as folder:
        opener = Opener(options, folder)

        def measured(shape):
            try:
                return measure(shape, options, opener, timer)
            finally:
                opener.close_others()

        def measured_or_failed(shape):
            try:
                return measured(shape)
            except (Refused, RuntimeError) as error:
                if options.device == "cuda":
                    torch.cuda.synchronize()  # an error of the device's own ends the process
                return {"failed": str(error).splitlines()[0]}

        try:
            left = measure_all(
                shapes, options, result, lambda r: run.write_row(options.out, r), measured_or_failed
            )
        finally:
            opener.close()
    print(table(result))
    wrong = sum(1 for row in result["rows"] if wrong_sides(row))
    told = [f"{wrong} convolutions have wrong gradients"] if wrong else []
    if left:
        told.append(f"the time is up, {left} are left: run it again to go on")
    return f"bench/convolutions.py: {'; '.join(told)}" if told else None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--layout", choices=("nhwc", "nchw"), default="nhwc")
    parser.add_argument("--no-tf32", action="store_true",
                        help="fp32 operands are not rounded to TF32, on no side")  # fmt: skip
    parser.add_argument("--shapes", type=pathlib.Path, default=SHAPES, metavar="FILE")
    parser.add_argument("--first", type=int, metavar="N", help="only the file's first N shapes")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="default: bench/results/convolutions_GPU_DTYPE_LAYOUT")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cudnn-plans", type=int, default=0, metavar="N",
                        help="ours times so many of cuDNN's plans for a call; 0: all")  # fmt: skip
    parser.add_argument("--aten-plans", type=int, default=10, metavar="N",
                        help="and ATen so many (cudnn.benchmark_limit); 0: all")  # fmt: skip
    parser.add_argument("--sides", default=",".join(["ours", "ours_other_form", *ATEN]),
                        help=f"of {', '.join([*OURS, *ATEN])}")  # fmt: skip
    parser.add_argument("--cache-dir", help="where ours keeps the plans that it chose")
    parser.add_argument("--library", help="libretrograd.so, if it is somewhere else")
    parser.add_argument("--commit", help="noted in the file; default: git's")
    parser.add_argument("--again", action="store_true", help="measure what has been measured, too")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu tries the script; the times mean nothing")  # fmt: skip
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text())))
        return None
    options.arguments = [a for a in sys.argv[1:] if a != "--here"]
    options.sides = options.sides.split(",")
    unknown = [s for s in options.sides if s not in OURS and s not in ATEN]
    if unknown:
        parser.error(f"no side {unknown[0]!r}; there are {', '.join([*OURS, *ATEN])}")
    why = run.missing(options.device)
    if why:
        sys.exit(f"bench/convolutions.py: {why}; it measures with PyTorch on an NVIDIA GPU")
    if not options.here:  # with the libraries of NVIDIA's where Python packages brought them
        command = [sys.executable, __file__, "--here", *options.arguments]
        return subprocess.run(command, env=run.environment(), check=False).returncode
    from measure import ours

    try:
        options.library = ours.find_library(options.library)
    except FileNotFoundError as error:
        sys.exit(f"bench/convolutions.py: {error}")
    if options.out is None:
        name = f"{run.slug_of_device(options.device)}_{options.dtype}_{options.layout}"
        options.out = ROOT / f"bench/results/convolutions_{name}.json"
    return measure_here(options)


if __name__ == "__main__":
    sys.exit(main())
