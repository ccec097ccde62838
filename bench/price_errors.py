#!/usr/bin/env python3
"""How far the prices of whole backwards' kernels and calls are from what each takes alone.

  bench/price_errors.py bench/results/kernel_times_h100.json          a line a graph, and all
  bench/price_errors.py FILE --kernels                                generated kernels alone
  bench/price_errors.py FILE --worst 10                               the furthest off, too
  bench/price_errors.py --pack OUT --commit C --device D LABEL=RUN.json..   makes such a file

A RUN.json is what `retrograd run GRAPH --device cuda --random-inputs 1 --repeat 30 --kernels
--json` prints. A packed file keeps of each step its kind, its ops, its predicted and its measured
microseconds, and its bytes.

As `fusion-explain analyze` counts: steps of more than 10 us; the error is the mean of |predicted -
measured| / measured, the order the share of pairs of steps in the measured order, of those that are
more than 5% apart. `ratio`: the geometric mean of predicted / measured. Of all graphs together a
pair is of one graph.

Needs no GPU, no build and no torch.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import math
import pathlib
import sys

LEAST_US = 10  # steps that take less are launches and noise
APART = 1.05  # times of which the order is asked
FIELDS = ("kind", "ops", "predicted_us", "measured_us", "read_bytes", "written_bytes")


@dataclasses.dataclass(frozen=True)
class Step:
    """A kernel or a library call: times in microseconds, bytes to and from memory."""

    kind: str
    ops: str
    predicted_us: float
    measured_us: float
    read_bytes: int
    written_bytes: int

    @property
    def off(self):
        """(predicted - measured) / measured."""
        return (self.predicted_us - self.measured_us) / self.measured_us


@dataclasses.dataclass(frozen=True)
class Figures:
    """Of the counted steps of one graph or of several."""

    steps: int
    error: float  # mean of |off|
    ratio: float  # geometric mean of predicted / measured
    pairs: int
    in_order: int


def counted(steps, kernels_alone):
    return [
        s for s in steps if s.measured_us > LEAST_US and (s.kind == "kernel" or not kernels_alone)
    ]


def figures(graphs):
    """Of lists of counted steps, one a graph; None where no step is counted."""
    steps = [s for graph in graphs for s in graph]
    if not steps:
        return None
    pairs = in_order = 0
    for graph in graphs:
        for a, b in itertools.combinations(graph, 2):
            if max(a.measured_us, b.measured_us) <= APART * min(a.measured_us, b.measured_us):
                continue
            pairs += 1
            in_order += (a.predicted_us - b.predicted_us) * (a.measured_us - b.measured_us) > 0
    logs = sum(math.log(s.predicted_us / s.measured_us) for s in steps)
    error = sum(abs(s.off) for s in steps) / len(steps)
    return Figures(len(steps), error, math.exp(logs / len(steps)), pairs, in_order)


def line(name, of):
    if of is None:
        return f"{name:20}    no step of more than {LEAST_US} us"
    order = f"{100 * of.in_order / of.pairs:.1f}%" if of.pairs else "-"
    return (
        f"{name:20} {of.steps:4} steps  error {100 * of.error:5.1f}%  "
        f"predicted / measured {of.ratio:.2f}  pairs in order {order}"
    )


def worst(steps, most):
    """Lines of the steps that are furthest off in microseconds; of equal ops the sum."""
    alike = collections.defaultdict(list)
    for s in steps:
        alike[s.kind, s.ops, s.read_bytes, s.written_bytes].append(s)

    def off(group):
        return abs(sum(s.predicted_us - s.measured_us for s in group))

    lines = []
    for group in sorted(alike.values(), key=off, reverse=True)[:most]:
        s = group[0]
        mb = (s.read_bytes + s.written_bytes) / 1e6
        lines.append(
            f"    {len(group):3} x {s.measured_us:8.1f} us, predicted {s.predicted_us:8.1f}, "
            f"{mb:7.1f} MB  {s.kind}: {s.ops[:90]}"
        )
    return lines


def read_steps(row):
    return [Step(*fields) for fields in row["steps"]]


def pack(options):
    """Writes OUT of what runs printed."""
    rows = []
    for argument in options.files:
        label, _, path = argument.partition("=")
        run = json.loads(pathlib.Path(path).read_text())
        rows.append(
            {
                "graph": label,
                "predicted_us": round(run["predicted_us"], 2),
                "measured_us": round(run["measured_us"], 2),
                "least_us": round(run["least_us"], 2),
                "most_us": round(run["most_us"], 2),
                "kernels_and_calls": run["kernels"],
                "steps": [
                    [round(s[f], 2) if f.endswith("_us") else s[f] for f in FIELDS]
                    for s in run["steps"]
                ],
            }
        )
    head = {
        "command": "retrograd run GRAPH.bwd.pb --device cuda --random-inputs 1 --repeat 30 "
        "--kernels --json",
        "device": options.device,
        "commit": options.commit,
        "fields": FIELDS,
    }
    lines = [json.dumps({k: v for k, v in row.items() if k != "steps"})[:-1] for row in rows]
    bodies = [",\n".join("   " + json.dumps(step) for step in row["steps"]) for row in rows]
    text = json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n'
    text += ",\n".join(f'  {a}, "steps": [\n{b}\n  ]}}' for a, b in zip(lines, bodies, strict=True))
    options.pack.write_text(text + "\n ]\n}\n")


def report(options):
    graphs = {}
    for path in options.files:
        for row in json.loads(pathlib.Path(path).read_text())["rows"]:
            graphs[row["graph"]] = counted(read_steps(row), options.kernels)
    for name, steps in graphs.items():
        print(line(name, figures([steps])))
        for text in worst(steps, options.worst):
            print(text)
    print(line("all", figures(list(graphs.values()))))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+")
    parser.add_argument("--kernels", action="store_true", help="generated kernels alone")
    parser.add_argument("--worst", type=int, default=0, help="so many steps of each graph, too")
    parser.add_argument("--pack", type=pathlib.Path, help="write runs to a file")
    parser.add_argument("--commit", default="", help="of the runs")
    parser.add_argument("--device", default="", help="of the runs")
    options = parser.parse_args()
    if options.pack is None:
        report(options)
    elif not (options.commit and options.device):
        sys.exit("--pack wants --commit and --device")
    else:
        pack(options)


if __name__ == "__main__":
    main()
