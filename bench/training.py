#!/usr/bin/env python3
"""Training steps as a user runs them: torch.compile with Inductor's modes beside backend="retrograd".

    bench/training.py [NAME ..] [--sides inductor,retrograd] [--out DIR] [--device cpu]

For each model and side, medians of repeated runs: `loss.backward()` by events, the GPU's time of it with
the host hidden, the host's time to issue it, the whole step (forward, backward, zeroing), also as one
CUDA graph, the first step (compiling) of an empty cache and the peak of the allocator. A model is measured in a process of its own,
with all its sides. Files are NAME.json; what is there stays unless --again, and NAME.part holds the sides
that a stopped run has measured. --cache keeps Inductor's
compiled code for a later call: the first step of its sides is then that of a warm cache.
"""

import argparse
import contextlib
import gc
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "models"), str(ROOT / "python")]

import run  # noqa: E402

MODELS = [
    "golf_gpt_34m_b32", "golf_plain_b48", "llama_small", "bert_base", "gpt2", "mixer_b16",
    "resnet50_b2", "resnet18_b1", "mobilenetv3_b2", "efficientnet_b0_b2", "convnext_tiny_b2",
    "vit_small_b8",
]  # fmt: skip
# name: (backend, options); None: eager
SIDES = {
    "eager": None,
    "inductor": ("inductor", {}),
    "mix_order_reduction_off": ("inductor", {"triton.mix_order_reduction": False}),
    "reduce_overhead": ("inductor", {"triton.cudagraphs": True}),
    "max_autotune": ("inductor", {"max_autotune": True, "coordinate_descent_tuning": True}),
    "retrograd": ("retrograd", {}),
    "retrograd_reduce_overhead": ("retrograd", {"mode": "reduce-overhead"}),
    "retrograd_python": ("retrograd", {"direct_gradients": False}),
    "retrograd_function_reduce_overhead": (
        "retrograd", {"mode": "reduce-overhead", "direct_forward": False}),
    "retrograd_one_stream": ("retrograd", {"streams": 1}),
    "retrograd_two_streams": ("retrograd", {"streams": 2}),
    "retrograd_three_streams": ("retrograd", {"streams": 3}),
    "retrograd_one_phase": ("retrograd", {"max_phases": 1}),
    "retrograd_images_as_given": ("retrograd", {"channels_last_forward": False}),
    "retrograd_unmerged": ("retrograd", {"disable": ["horizontal"]}),
    "retrograd_late_launches": ("retrograd", {"early_launches": False}),
    "retrograd_cudnn": ("retrograd", {"conv_bwd_input_backends": ["cudnn", "matmul"],
                                      "conv_bwd_weight_backends": ["cudnn", "matmul"]}),
}
HOST_RUNS = 30


def step_of(name, device, side):
    """A step of a model as one of SIDES runs it."""
    import torch
    import zoo
    from measure.step import Step
    from retrograd.backend import backend

    model, args, kwargs = zoo.make(name, device)
    call, graphs = model, False
    if SIDES[side] is not None:
        which, options = SIDES[side]
        graphs = side.endswith("reduce_overhead")
        call = torch.compile(
            model,
            backend=backend if which == "retrograd" else "inductor",
            options=options or None,
            dynamic=False,
        )
    return Step(model, args, kwargs, zoo.autocasts(name, device), call, graphs)


def _references(name, device):
    """The gradients of eager float64 by parameter, and "" — or none, and why not."""
    import torch
    import zoo

    torch.manual_seed(0)
    model, args, kwargs = zoo.make(name, device)
    if any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in model.modules()):
        return {}, "it drops out values at random"
    model = model.double()
    args = [a.double() if a.is_floating_point() else a for a in args]
    result = model(*args, **kwargs)
    getattr(result, "loss", result).backward()
    return {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}, ""


def _errors(step, references):
    """Of the step's gradients against float64's: the median and the worst of all parameters'."""
    from measure import float64

    if not references:
        return None
    step.whole()
    named = dict(step.model.named_parameters())
    found = [named[name].grad for name in references]
    errors = float64.errors(found, [r.to(f.device) for f, r in zip(found, references.values(), strict=True)])
    return {"median": statistics.median(errors), "most": max(errors)}


@contextlib.contextmanager
def _inductor_cache(folder):
    """Inductor's cache in the folder, or in one that goes."""
    with tempfile.TemporaryDirectory() as own:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder or own)
        yield


def _settle(step, side):
    """Runs until nothing is compiled any more: autograd's node of our side is made behind the first
    steps, and then looks on in one."""
    from retrograd.backend.node import extension

    if side.startswith("retrograd"):
        extension.loaded(wait=True)
        for _ in range(3):
            step.whole()
    return extension.loaded().counts() if extension.loaded() else (0, 0, 0)


def prepare(name, device, side):
    """(the compiled step of a side, the first figures of its row)."""
    import torch
    from measure import watch
    from retrograd.backend import messages

    torch.manual_seed(0)
    step = step_of(name, device, side)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", messages.BackwardFallsBack)
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            step.whole()
            watch.synchronize()
            seconds.append(time.perf_counter() - begin)
        row = {"first_step_s": seconds[0]}
        row["fell_back"] = [str(w.message) for w in told]
        _settle(step, side)
    step.clear()
    return step, row


def measure(prepared, side, repeat, references, most_kernels):
    """The figures of a side that `prepare` gave."""
    from measure import watch

    step, row = prepared
    device, before = step.device, _settle(step, side)
    row["gradient_errors"] = _errors(step, references)
    row["backward_gpu_ms"] = watch.gpu_ms(step.forward, step.backward, repeat)
    row["backward_ms"] = _by_events(step.forward, step.backward, repeat)
    with _host_parts(row):
        row["backward_host_us"] = watch.host_us(step.forward, step.backward, HOST_RUNS)
    if side.startswith("retrograd"):
        row["library_run_us"] = _library_run_us(step)
    row["step_ms"] = _by_events(lambda: None, step.whole, repeat)
    if device == "cuda":
        row["kernels"] = watch.kernels(step.forward, step.backward, most_kernels)
        if not step.graphs:  # whose private pool holds everything all the time
            row["peak_bytes"] = _peak_bytes(step)
    after = _settle(step, side)
    if not step.graphs:
        row |= _captured(step, repeat)
    row["without_python"] = {
        key: b - a
        for key, a, b in zip(("backwards", "gradients", "let_go"), before, after, strict=True)
    }
    step.clear()
    return row


@contextlib.contextmanager
def _host_parts(row):
    """Puts into the row what our node of autograd did of the block's backwards, in us for each."""
    from retrograd.backend.node import extension

    module = extension.loaded()
    if module is None:
        yield
        return
    before, runs = module.host_ns(), module.counts()[0]
    yield
    runs = module.counts()[0] - runs
    if runs > 0:
        after = module.host_ns()
        row["node_us"] = {part: (after[part] - before[part]) / runs / 1e3 for part in after}


def _library_run_us(step):
    """The library's part of the host's time, of one backward."""
    from retrograd.backend import programs

    def last():
        alive = list(programs._programs.values())
        return {program.key: program.executable.last_run_us for program in alive}

    step.forward()
    before = last()
    step.backward()
    # A program that did not run has the time of an earlier run.
    return sum(us for key, us in last().items() if us != before.get(key))


def _by_events(prepare, work, repeat):
    """Milliseconds between events around the work, with the host as it is; wall time on a CPU."""
    import torch
    from measure import watch

    if not torch.cuda.is_available():
        return watch.wall_ms(prepare, work, repeat)
    samples = []
    for _ in range(repeat):
        prepare()
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        samples.append(begin.elapsed_time(end))
    return watch.summary(samples)


def _captured(step, repeat):
    """The time of the step as one CUDA graph, or why there is none."""
    from retrograd import capture_step

    try:
        captured = capture_step(step.whole)
        return {"captured_step_ms": _by_events(lambda: None, captured, repeat)}
    except RuntimeError as error:
        return {"captured_step_failed": f"{error}: {error.__cause__}"[:300]}


def _peak_bytes(step):
    """The most that the allocator handed out during a step, less what was there before."""
    import torch

    step.clear()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step.whole()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def file_of(name, folder):
    """A model's file: its name, without what a file's name does not hold everywhere."""
    return folder / (re.sub(r"[^\w.=-]+", "_", name) + ".json")


class Kept:
    """The row of a model, which is on disk as soon as a side has been measured: what was stopped goes
    on with the other sides. A row of another commit, machine or command is begun anew."""

    def __init__(self, folder, row):
        folder.mkdir(parents=True, exist_ok=True)
        self._path = file_of(row["model"], folder)
        self._part = self._path.with_suffix(".part")
        self.row = row
        before = json.loads(self._part.read_text()) if self._part.exists() else {}
        same = all(before.get(key) == row[key] for key in ("machine", "commit", "command", "repeat"))
        if same:
            row["sides"] = before["sides"]

    def add(self, side, figures):
        self.row["sides"][side] = figures
        run.write_row(self._part, self.row)

    def end(self):
        run.write_row(self._path, self.row)
        self._part.unlink(missing_ok=True)


def measure_model(options):
    import torch
    from measure import one_model

    torch.set_float32_matmul_precision("high")
    row = {"model": options.one, "machine": one_model.machine(options.device),
           "commit": options.commit, "command": options.command,
           "repeat": options.repeat, "sides": {}}  # fmt: skip
    kept = Kept(options.out, row)
    references, why = {}, "not asked for" if options.no_reference else ""
    try:
        if not why:
            references, why = _references(options.one, options.device)
    except ImportError:
        pass  # told below
    except torch.OutOfMemoryError:
        why = "the device's memory does not hold its float64 run"
    if why:
        row["no_reference"] = why
    gc.collect()
    sides = [side for side in options.sides.split(",") if side not in row["sides"]]
    try:
        for side, figures in (_held if options.at_once > 1 else _in_turn)(sides, references, options):
            kept.add(side, figures)
            print(json.dumps({options.one: {side: _told(figures)}}), flush=True)
    except ImportError as error:
        row["skipped"] = f"{error.name} is not installed"
    kept.end()


def _figures(work):
    """What the work returns. One side's failure is a figure, too; a package that is missing is none."""
    try:
        return work()
    except ImportError:
        raise
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:2000]}


def _in_turn(sides, references, options):
    """(side, figures) of each, while no other side holds memory."""
    import torch

    for side in sides:
        torch._dynamo.reset()
        with _inductor_cache(options.cache):
            figures = _figures(lambda: measure(
                prepare(options.one, options.device, side),
                side, options.repeat, references, options.kernels,
            ))  # fmt: skip
        yield side, figures
        gc.collect()
    torch._dynamo.reset()


def _held(sides, references, options):
    """(side, figures) of each: all are compiled, and measured when it is this process's turn."""
    import torch
    from measure import at_once

    # The compiled code of all sides stands behind the same functions.
    torch._dynamo.config.recompile_limit *= max(len(sides), 1)
    prepared = {}
    with contextlib.ExitStack() as caches:
        for side in sides:
            caches.enter_context(_inductor_cache(options.cache))
            prepared[side] = _figures(lambda: prepare(options.one, options.device, side))
            gc.collect()
            if options.device == "cuda":
                torch.cuda.empty_cache()
        at_once.await_turn()
        for side, made in prepared.items():
            failed = isinstance(made, dict)
            yield side, made if failed else _figures(
                lambda: measure(made, side, options.repeat, references, options.kernels)
            )


def _told(row):
    if "failed" in row:
        return row
    return {
        key: round(value["median"], 3) if isinstance(value, dict) and "median" in value else value
        for key, value in row.items()
        if key != "kernels"
    }


def _command(name, options):
    """Of the process that measures one model."""
    command = [sys.executable, __file__, "--one", name, "--sides", options.sides, "--repeat",
               str(options.repeat), "--device", options.device, "--out", str(options.out),
               "--kernels", str(options.kernels), "--commit", options.commit,
               "--command", options.command, "--at-once", str(options.at_once)]  # fmt: skip
    if options.cache:
        command += ["--cache", str(options.cache)]
    if options.no_reference:
        command.append("--no-reference")
    return command


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="models of models/zoo.py or models/by_name.py; default: the twelve")  # fmt: skip
    parser.add_argument("--sides", default="inductor,mix_order_reduction_off,reduce_overhead,retrograd")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=10, help="for one model at most")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu tries the script; the times mean nothing")  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help="Inductor's; default: empty")
    parser.add_argument("--kernels", type=int, default=10, metavar="N",
                        help="how many of the largest kernels are noted")  # fmt: skip
    parser.add_argument("--at-once", type=int, default=1, metavar="N",
                        help="so many models are compiled at once, and measured one at a time; the first "
                        "step's time is then that of a busy machine")  # fmt: skip
    parser.add_argument("--no-reference", action="store_true", help="without float64 gradients")
    parser.add_argument("--commit", help="noted in the files; default: git's")
    parser.add_argument("--again", action="store_true", help="measure what has been measured, too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--command", default=" ".join(["bench/training.py", *sys.argv[1:]]),
                        help=argparse.SUPPRESS)  # fmt: skip
    options = parser.parse_args()
    from measure import at_once
    from tables import training_table

    why = run.missing(options.device)
    if why:
        sys.exit(f"bench/training.py: {why}; it measures with PyTorch 2.11 on an NVIDIA GPU")
    import zoo

    unknown = [s for s in options.sides.split(",") if s not in SIDES]
    if unknown:
        parser.error(f"no side {unknown[0]!r}; there are {', '.join(SIDES)}")
    for name in options.names:
        try:
            zoo.maker(name)
        except ValueError as error:
            parser.error(str(error))
    if options.at_once < 1:
        parser.error(f"--at-once is {options.at_once}, but at least 1")
    options.commit = run.commit() if options.commit is None else options.commit
    options.out = options.out or (
        ROOT / "bench/results" / f"training_{run.slug_of_device(options.device)}"
    )
    if options.one:
        return measure_model(options)
    names = [
        name for name in options.names or MODELS
        if options.again or not file_of(name, options.out).exists()
    ]  # fmt: skip
    names = list(dict.fromkeys(names))
    for some in (names[i : i + options.at_once] for i in range(0, len(names), options.at_once)):
        commands = {name: _command(name, options) for name in some}
        for name, why in at_once.run(commands, 60 * options.minutes).items():
            print(f"{name}: {why}", flush=True)
    print(training_table.table(options.out))


if __name__ == "__main__":
    sys.exit(main())
