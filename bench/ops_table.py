#!/usr/bin/env python3
"""Writes the table of single ops in docs/benchmarks.md, from bench/results/ops_<GPU>.json.

  bench/ops_table.py            rewrites the page
  bench/ops_table.py --check    exit status 1 if it would change
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/benchmarks.md"
HEADS = ("op", "ours, us", "Inductor, us", "ratio", "floor, TB/s", "predicted, us")


def _cells(row):
    us = {side: 1e3 * row[side]["gpu_ms"]["median"] for side in ("ours", "inductor")}
    predicted = row["ours"].get("predicted_ms")
    return (
        row["op"], f"{us['ours']:.1f}", f"{us['inductor']:.1f}", f"{us['ours'] / us['inductor']:.2f}",
        f"{row['floor_bytes'] / us['ours'] / 1e6:.2f}",
        "-" if predicted is None else f"{1e3 * predicted:.1f}",
    )  # fmt: skip


def table(path):
    """The table of a file, as Markdown."""
    rows = next(v for v in json.loads(path.read_text()).values() if isinstance(v, list))
    rows = [row for row in rows if row["status"] == "measured"]
    machine, commits = rows[0]["machine"], sorted({row["commit"] for row in rows})
    ratios = [float(_cells(row)[3]) for row in rows]
    mean = ("geometric mean", "", "", f"{statistics.geometric_mean(ratios):.2f}", "", "")
    return "\n".join(
        [
            f"{machine['device']}, driver {machine.get('driver', '-')}, PyTorch {machine['pytorch']}, commit "
            f"{', '.join(commits)}; `bench/ops.py --sides ours,inductor`:",
            "",
            *(f"| {' | '.join(cells)} |" for cells in (HEADS, ["---"] * len(HEADS))),
            *(f"| {' | '.join(_cells(row))} |" for row in rows),
            f"| {' | '.join(mean)} |",
        ]
    )


def written(text):
    """The page with the tables of what is in bench/results."""
    for path in sorted((ROOT / "bench/results").glob("ops_*.json")):
        begin, end = f"<!-- {path.stem} -->", f"<!-- /{path.stem} -->"
        block = f"{begin}\n{table(path)}\n{end}"
        text, count = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, b=block: b, text, flags=re.DOTALL
        )
        if count != 1:
            sys.exit(f"{PAGE}: {begin} and {end} are needed once, found {count} times")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    before = PAGE.read_text()
    after = written(before)
    if options.check and before != after:
        sys.exit(f"{PAGE} is not what bench/ops_table.py writes of bench/results: run it")
    if before != after:
        PAGE.write_text(after)


if __name__ == "__main__":
    main()
