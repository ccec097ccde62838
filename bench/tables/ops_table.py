#!/usr/bin/env python3
"""Writes the table of single ops in docs/benchmarks.md, from bench/results/ops_<GPU>.json.

bench/tables/ops_table.py            rewrites the page
bench/tables/ops_table.py --check    exit status 1 if it would change
"""

import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tables import table_page  # noqa: E402

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


if __name__ == "__main__":
    table_page.main("bench/tables/ops_table.py", __doc__, "ops_*.json", table)
