#!/usr/bin/env python3
"""Predicted times of single convolutions' gradients beside measured ones.

  bench/convolution_prices.py bench/results/convolutions_bf16_nhwc_h100.json --spec h100

The file is one that bench/convolutions.py left. Measured is the time of the implementation that
was chosen when the gradient was first met; predicted is the price of the same call in a plan. A
line for each kind of gradient, and one for each model: how many, the mean of |predicted -
measured| / measured, the geometric mean of predicted / measured, and the share of pairs whose
order the prices tell, among those that are more than 5% apart.

Needs fusion-explain, as `make build` leaves it; no GPU, no torch.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench")]

from workloads.convolution_graphs import read_shapes, text_of  # noqa: E402

OPS = ("convolution_input_gradient", "convolution_weight_gradient")
APART = 1.05  # times of which the order is asked


@dataclasses.dataclass(frozen=True)
class Pair:
    """One gradient's times in microseconds."""

    shape: object  # a Convolution
    op: str
    models: tuple
    measured: float
    predicted: float

    @property
    def kind(self):
        name = "input gradient" if self.op == OPS[0] else "weight gradient"
        return f"{name}, {'groups' if self.shape.groups > 1 else 'one group'}"


def measured_us(row):
    """{op: microseconds} of a row's gradients that are convolutions and were timed."""
    times = {}
    for call in row.get("calls", {}).get("ours", []):
        found = re.search(r": ([\d.]+) us", call["by"])
        if call["op"] in OPS and found:
            times[call["op"]] = float(found[1])
    return times


def predicted_us(explanation):
    """{op: microseconds} of a plan as fusion-explain writes it."""
    return {
        group["ops"][0]["op"]: group["price_ps"] / 1e6
        for group in explanation["groups"]
        if group["ops"][0]["op"] in OPS
    }


def summary(pairs):
    """(mean relative error, geometric mean of the ratio, share of pairs in order or None)."""
    error = sum(abs(p.predicted - p.measured) / p.measured for p in pairs) / len(pairs)
    logs = sum(math.log(p.predicted / p.measured) for p in pairs)
    right = asked = 0
    for a, b in itertools.combinations(pairs, 2):
        if max(a.measured, b.measured) < APART * min(a.measured, b.measured):
            continue
        asked += 1
        right += (a.predicted - b.predicted) * (a.measured - b.measured) > 0
    return error, math.exp(logs / len(pairs)), right / asked if asked else None


def line(name, pairs):
    error, ratio, order = summary(pairs)
    asked = "-" if order is None else f"{100 * order:.1f}%"
    return (
        f"{name:32} {len(pairs):4}  error {100 * error:5.1f}%  predicted / measured {ratio:.2f}  "
        f"pairs in order {asked}"
    )


def plan_of(shape, options, folder):
    path = pathlib.Path(folder) / "convolution.rgt"
    path.write_text(text_of(shape, options.dtype, options.channels_last, matmuls=False))
    command = [options.explain, "plan", path, "--device", options.spec, "--format", "json"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        sys.exit(f"{shape.name()}: {made.stderr.strip()}")
    return json.loads(made.stdout)


def pairs_of(result, shapes, options):
    by_name = {shape.name(): shape for shape in shapes}
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for row in result["rows"]:
            times = measured_us(row)
            if not times:
                continue
            shape = by_name[row["shape"]]
            predicted = predicted_us(plan_of(shape, options, folder))
            models = tuple(row["models"])
            pairs += [Pair(shape, op, models, us, predicted[op]) for op, us in times.items()]
    return pairs


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--spec", required=True, help="name or file of a device spec")
    parser.add_argument("--shapes", type=pathlib.Path, default=ROOT / "bench/data/convolutions.csv")
    parser.add_argument("--explain", default=ROOT / "build/release/bin/fusion-explain")
    parser.add_argument("--all", action="store_true", help="a line for each gradient, too")
    options = parser.parse_args()
    result = json.loads(options.result.read_text())
    options.dtype = result["key"]["dtype"]
    options.channels_last = result["key"]["layout"] == "nhwc"
    pairs = pairs_of(result, read_shapes(options.shapes), options)
    if not pairs:
        sys.exit(f"{options.result}: no gradient of a convolution was timed")
    print(line("all", pairs))
    groups = collections.defaultdict(list)
    for pair in pairs:
        for name in (pair.kind, *pair.models):
            groups[name].append(pair)
    for name in sorted(groups):
        print(line(name, groups[name]))
    for p in pairs if options.all else []:
        print(f"{p.shape.name():40} {p.kind:28} {p.measured:6.1f} {p.predicted:6.1f}")


if __name__ == "__main__":
    main()
