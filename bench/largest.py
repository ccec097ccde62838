#!/usr/bin/env python3
"""Where the time of a measured backward is: the largest kernels of both sides, as one table.

  bench/largest.py bench/results/backward_nvidia_h200/bert_base.json

Ours are the steps of the deterministic program, each run alone, equal ones together, beside what they
were predicted to take; PyTorch's are the kernels of its best mode, by its profiler.
"""

import argparse
import json
import pathlib

from run import best_of


def ours(row):
    """[(microseconds, predicted, how many, what)], the largest first."""
    groups = {}
    for step in row["ours"]["deterministic"]["steps"]:
        what = step["ops"]
        if step["kind"] == "matmul":
            what += " " + "x".join(str(step[axis]) for axis in "mnk")
            what += f", {step['batch']} of them" if step["batch"] > 1 else ""
        measured, predicted, count = groups.get(what, (0.0, 0.0, 0))
        groups[what] = (
            measured + step["measured_us"], predicted + step["predicted_us"], count + 1
        )  # fmt: skip
    return sorted(((*figures, what) for what, figures in groups.items()), reverse=True)


def table(row, most=10):
    mode, _ = best_of(row)
    theirs = row["pytorch"][mode]["kernels"]["largest"][:most]
    lines = [
        f"| ours: ms (predicted), how often | | {mode}: ms, how often | |",
        "|---|---|---|---|",
    ]
    mine = ours(row)[:most]
    for i in range(max(len(mine), len(theirs))):
        left = right = "| "
        if i < len(mine):
            measured, predicted, count, what = mine[i]
            left = f"{measured / 1e3:.2f} ({predicted / 1e3:.2f}), {count} | {what[:80]}"
        if i < len(theirs):
            kernel = theirs[i]
            right = f"{kernel['ms']:.2f}, {kernel['count']} | {kernel['name'][:70]}"
        lines.append(f"| {left} | {right} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--most", type=int, default=10)
    options = parser.parse_args()
    for path in options.files:
        row = json.loads(path.read_text())
        if row["status"] == "measured" and row.get("pytorch"):
            print(f"{row['model']}\n\n{table(row, options.most)}\n")


if __name__ == "__main__":
    main()
