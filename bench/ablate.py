#!/usr/bin/env python3
"""What each optional part of planner and runtime is worth on this GPU: backwards with and without.

  bench/ablate.py                        make bench-ablate
  bench/ablate.py --budget 500           stops after so many seconds, with what was measured
  bench/ablate.py gpt2 softmax --parts "staged rows,pitches" --out FILE
  bench/ablate.py static:gpt2@batch=4,length=1000 dynamic:gpt2@batch=4,length=1000
                                         one size of a graph that leaves it open, both ways
  bench/ablate.py --predict --spec h100 --device host   plans alone, without a GPU

1. Each model has a process of its own; all of them begin at once. The models of
   bench/workloads/ablation_models.py are captured. Every backward is planned whole and without each
   part (bench/measure/ablation_parts.py), and its kernels are compiled into the cache. Nothing is
   timed.
2. One process after the other measures: what does something else without a part runs in turns with
   the whole, on the same random inputs, while the host is hidden. A part without which the program
   is the same, by the digest of its text, has the ratio 1 and is not run.

Where time is short, what is predicted to differ most comes first. The forward is in none of the
times. docs/benchmarks.md shows the table that bench/tables/ablation_table.py makes of the file.

Needs torch, a GPU, and the library that `make build` leaves in build/release/bin; no network.
"""

import argparse
import gc
import json
import math
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("bench", "python", "models")]

from measure.ablation_parts import PARTS  # noqa: E402
from run import commit, environment, missing, slug_of_device, write_row  # noqa: E402

FORMAT = 2  # of the file
REGISTRY = ["golf_gpt_34m_b32", "golf_plain_b48", "bert", "gpt2", "llama", "vit"]
REPEAT = 9
SAMPLE_MS = 4  # of one sample at least: short backwards run several times in it
UNSEEN = 1e-6  # a smaller predicted difference: no price sees what is otherwise
PREPARING = 0.6  # of the budget, at most
LONGEST_STEP = 45  # seconds: opening a program and measuring it; what a model may be late


def default_models():
    from workloads import ablation_models

    return [*REGISTRY, *ablation_models.MODELS]


class Model:
    """One model in its process: prepared, then measured."""

    def __init__(self, options):
        self.name, self.options = options.one, options
        self.row = {"model": self.name, "without": {}}
        self.programs = {}  # part: what describe() says without it
        self.sized = {}  # options of a program for sizes that vary

    def open(self, part_options, **more):
        from measure import ours

        known = {"cache_dir": str(self.options.cache), **more}
        known |= {"spec": self.options.spec} if self.options.spec else {}
        known |= self.sized
        return ours.Backward(
            self.options.library, self.graph, self.options.device, **known, **part_options
        )

    def describe(self, part_options):
        with self.open(part_options, runnable=False) as backward:
            return backward.describe()

    def capture(self):
        """The name or file of the graph."""
        from workloads import ablation_models, sized_graphs

        if sized_graphs.knows(self.name):
            return self.capture_sized(sized_graphs.parse(self.name))
        if not ablation_models.knows(self.name):
            return self.name
        import torch
        from retrograd.atomic_file import write_atomically
        from retrograd.translate import translate

        where = "cpu" if self.options.device == "host" else "cuda"
        graph, _ = translate(ablation_models.capture(self.name, where), self.name)
        path = self.options.graphs / f"{self.name}.bwd.pb"
        write_atomically(path, graph.SerializeToString(deterministic=True))
        if where == "cuda":  # of the model nothing but the graph is needed
            gc.collect()
            torch.cuda.empty_cache()
        return path

    def capture_sized(self, sized):
        self.row["sizes"] = "dynamic" if sized.dynamic else "static"
        if sized.dynamic:
            self.sized = {"sizes": sized.sizes, "sizes_vary": True}
            return sized.path
        from retrograd import native

        path = self.options.graphs / f"{self.name.replace('/', '_')}.bwd.pb"
        library = native.load(self.options.library)
        with native.Graph.load(sized.path, library) as graph, graph.bind(sized.sizes) as bound:
            bound.save(path)
        return path

    def prepare(self):
        from measure import ours

        self.graph = self.capture()
        self.whole = self.describe({})
        self.row["whole"] = _figures(self.whole)
        for name in self.options.parts:
            try:
                said = self.describe(PARTS[name].options)
            except ours.Refused as error:
                self.row["without"][name] = {"refused": str(error)}
                continue
            figures = _figures(said)
            figures["predicted_ratio"] = said["predicted_us"] / self.whole["predicted_us"]
            if self.same(name, said):
                figures["same"] = True
            else:
                self.programs[name] = said
            self.row["without"][name] = figures

    def same(self, name, said):
        """Whether the program without the part is the whole one, and that is all there is to it."""
        beyond = PARTS[name].beyond_text
        calls = {kind: n for kind, n in self.whole["groups"].items() if kind != "kernel" and n}
        if beyond == "all" or (beyond and (beyond in calls or (beyond == "call" and calls))):
            return False
        return said["digest"] == self.whole["digest"]

    def order(self):
        """Parts whose programs differ, what is predicted to matter most first; those that no price
        tells of before all others."""

        def promise(name):
            difference = abs(math.log(self.row["without"][name]["predicted_ratio"]))
            return difference if difference > UNSEEN else math.inf

        return sorted(self.programs, key=promise, reverse=True)

    def measure(self, until):
        """Until a time of time.monotonic; parts that are not reached are marked so."""
        from measure import ours, watch

        device = "cpu" if self.options.device == "host" else "cuda"
        known = {}  # by the digest of a program whose text says all
        with self.open({}) as whole:
            inputs = ours.drawn_inputs(self.whole, device)
            outputs = ours.empty_outputs(self.whole, device)
            whole.bind(inputs, outputs)
            whole.run()
            self.row["whole"] |= _figures(whole.describe())
            (alone,) = watch.in_turns([whole.run], self.options.repeat, SAMPLE_MS)
            self.row["whole"]["gpu_ms"] = alone
            for name in self.order():
                figures, digest = self.row["without"][name], self.programs[name]["digest"]
                key = None if PARTS[name].beyond_text else digest
                if key in known:
                    figures |= {k: known[key][k] for k in ("ratio", "gpu_ms", "whole_gpu_ms")}
                    figures["like"] = known[key]["name"]
                elif time.monotonic() > until:
                    figures["not_measured"] = "the budget was spent"
                else:
                    try:
                        figures |= self.measure_one(name, whole, inputs, outputs)
                    except (ours.Refused, RuntimeError) as error:
                        figures["refused"] = str(error)
                    if key and "ratio" in figures:
                        known[key] = {"name": name, **figures}
                self.say(name, figures)

    def measure_one(self, name, whole, inputs, outputs):
        from measure import watch

        with self.open(PARTS[name].options) as without:
            without.bind(inputs, outputs)
            without.run()
            said = without.describe()
            # With spills a first plan is not the last.
            if self.same(name, said):
                return {"same": True}
            whole_ms, without_ms = watch.in_turns(
                [whole.run, without.run], self.options.repeat, SAMPLE_MS,
                hiding=3 if "record" in PARTS[name].options else 1,
            )  # fmt: skip
        return _figures(said) | {
            "gpu_ms": without_ms, "whole_gpu_ms": whole_ms,
            "ratio": without_ms["median"] / whole_ms["median"],
        }  # fmt: skip

    def say(self, name, figures):
        said = figures.get("refused") or figures.get("not_measured") or "the same program"
        if "ratio" in figures:
            said = f"{figures['ratio']:.3f} (predicted {figures['predicted_ratio']:.3f})"
        switched = "with" if PARTS[name].off else "without"
        print(f"  {self.name}, {switched} {name}: {said}", file=sys.stderr, flush=True)


def _figures(said):
    names = (
        "predicted_us",
        "kernels",
        "arena_bytes",
        "peak_bytes",
        "scratch_bytes",
        "plans",
        "digest",
    )
    return {name: said[name] for name in names if name in said}


def one(options):
    """A model's process. It says on stdout when it is prepared, then waits for a number on stdin:
    the seconds that it may measure."""
    model = Model(options)
    if options.device != "host":
        import torch

        torch.zeros(1, device="cuda")  # one context for all that is opened
    begin = time.monotonic()
    model.prepare()
    model.row["preparing_s"] = round(time.monotonic() - begin, 1)
    write_row(options.part, model.row)
    print("prepared", flush=True)
    line = sys.stdin.readline()
    if not line.strip() or options.predict:
        return
    begin = time.monotonic()
    model.measure(begin + float(line))
    model.row["measuring_s"] = round(time.monotonic() - begin, 1)
    write_row(options.part, model.row)


class Process:
    """A model's process, seen from outside."""

    def __init__(self, name, options):
        self.name, self.part = name, options.out.with_suffix(f".{name.replace('/', '_')}")
        self.part.unlink(missing_ok=True)
        self.prepared, self.given_up = threading.Event(), threading.Event()
        self.child, self.options = None, options

    def prepare(self, turns):
        """In a thread; `turns` says how many may at once."""
        with turns:
            if self.given_up.is_set():
                return
            self.child = subprocess.Popen(
                [sys.executable, __file__, "--one", self.name, "--part", str(self.part),
                 "--library", str(self.options.library), "--device", self.options.device,
                 "--spec", self.options.spec, "--cache", str(self.options.cache),
                 "--graphs", str(self.options.graphs), "--parts", ",".join(self.options.parts),
                 "--repeat", str(self.options.repeat),
                 *(["--predict"] if self.options.predict else [])],
                env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            for line in self.child.stdout:
                if line.strip() == "prepared":
                    break
        self.prepared.set()

    def measure(self, seconds):
        """The model's row, or None. Whatever happens, the process is gone afterwards."""
        try:
            self.child.communicate(f"{seconds}\n", timeout=seconds + LONGEST_STEP)
        except (subprocess.SubprocessError, OSError, AttributeError) as error:
            print(f"{self.name}: FAILED: {error}", flush=True)
        self.stop()
        try:
            return json.loads(self.part.read_text())
        except (OSError, ValueError):
            return None
        finally:
            self.part.unlink(missing_ok=True)

    def stop(self):
        self.given_up.set()
        if self.child is not None and self.child.poll() is None:
            self.child.kill()
            self.child.wait()


def all_models(options):
    from measure import one_model

    begin = time.monotonic()
    names = options.names or default_models()
    turns = threading.Semaphore(options.jobs)
    processes = [Process(name, options) for name in names]
    for process in processes:
        threading.Thread(target=process.prepare, args=(turns,), daemon=True).start()
    deadline = begin + PREPARING * options.budget
    for process in processes:
        process.prepared.wait(max(deadline - time.monotonic(), 0))
    late = [p for p in processes if not p.prepared.is_set()]
    for process in late:
        print(f"{process.name}: FAILED: not prepared in {PREPARING:.0%} of the time", flush=True)
        process.stop()
    print(f"prepared in {time.monotonic() - begin:.0f} s", flush=True)
    machine = one_model.machine("cpu" if options.device == "host" else "cuda")
    rows, left = [], [p for p in processes if p not in late]
    while left:
        seconds = (begin + options.budget - time.monotonic()) / len(left)
        process = left.pop(0)
        row = process.measure(max(seconds, 0))
        if row is None or "whole" not in row:
            print(f"{process.name}: FAILED: it left no figures", flush=True)
            continue
        rows.append(row)
        print(f"{summary(row)}; {time.monotonic() - begin:.0f} s", flush=True)
        write_result(options, rows, begin, machine)
    if not rows:
        sys.exit("bench/ablate.py: no model could be measured")


def write_result(options, rows, begin, machine):
    write_row(
        options.out,
        {"format": FORMAT, "command": " ".join(["bench/ablate.py", *options.command]),
         "commit": options.commit or commit(), "machine": machine, "repeat": options.repeat,
         "seconds": round(time.monotonic() - begin, 1),
         "parts": {name: PARTS[name].options for name in options.parts}, "models": rows},
    )  # fmt: skip


def summary(row):
    """One line on a model."""
    figures = row["without"].values()
    count = {k: sum(k in f for f in figures) for k in ("ratio", "same", "refused", "not_measured")}
    return (
        f"{row['model']}: {count['ratio']} parts measured, {count['same']} change nothing, "
        f"{count['refused']} refused, {count['not_measured']} not reached"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="MODEL",
                        help="of the registry or of bench/workloads/ablation_models.py; default: "
                        "all of those, and six of the registry")  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="default: bench/results/ablation_ and the GPU's name")  # fmt: skip
    parser.add_argument("--parts", default=",".join(PARTS), help="default: all")
    parser.add_argument("--budget", type=float, default=3600, metavar="SECONDS")
    parser.add_argument("--library", help="libretrograd.so, if it is somewhere else")
    parser.add_argument("--repeat", type=int, default=REPEAT)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(),
                        help="models that are prepared at once; default: a core each")  # fmt: skip
    parser.add_argument("--cache", type=pathlib.Path, metavar="DIR",
                        help="of kernels and choices; default: beside --out")  # fmt: skip
    parser.add_argument("--graphs", type=pathlib.Path, metavar="DIR",
                        help="captured graphs are left there; default: beside --out")  # fmt: skip
    parser.add_argument("--commit", help="noted in the file; default: git's")
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda",
                        help="host tries the script; the times mean nothing")  # fmt: skip
    parser.add_argument("--spec", default="", help="default: the device's")
    parser.add_argument("--predict", action="store_true", help="measure nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.command = sys.argv[1:]
    options.parts = [p for p in options.parts.split(",") if p]
    unknown = [p for p in options.parts if p not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    why = missing("cpu" if options.device == "host" else "cuda")
    if why:
        sys.exit(f"bench/ablate.py: {why}; it measures on a machine with an NVIDIA GPU")
    from measure import ours

    options.library = ours.find_library(options.library)
    if options.one:
        return one(options)
    slug = slug_of_device("cpu" if options.device == "host" else "cuda")
    options.out = options.out or ROOT / f"bench/results/ablation_{slug}.json"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.cache = options.cache or options.out.with_suffix(".cache")
    options.graphs = options.graphs or options.out.with_suffix(".graphs")
    options.graphs.mkdir(parents=True, exist_ok=True)
    all_models(options)


if __name__ == "__main__":
    main()
