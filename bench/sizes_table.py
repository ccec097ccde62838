#!/usr/bin/env python3
"""Writes the tables of changing sizes in docs/benchmarks.md, from bench/results/sizes_<GPU>.json.

  bench/sizes_table.py            rewrites the page
  bench/sizes_table.py --check    exit status 1 if it would change
"""

import json
import statistics

import table_page

HEADS = (
    "model", "sizes", "new size, s", "Inductor, s", "seen size, ratio to Inductor", "to own kernels",
)  # fmt: skip


def _span(values, form):
    return f"{form.format(min(values))} to {form.format(max(values))}"


def _cells(row):
    # The first size's new_s holds what is compiled for all.
    ours = [size["ours"] for size in row["sizes"]]
    own = [side["ms"] / side["own_ms"] for side in ours]
    cells = (
        row["model"], ", ".join(str(size["size"]) for size in row["sizes"]),
        _span([side["new_s"] for side in ours[1:]], "{:.2f}"),
    )  # fmt: skip
    compared = f"{statistics.geometric_mean(own):.3f} ({_span(own, '{:.2f}')})"
    if "inductor" in row["errors"]:
        return (*cells, "fails", "-", compared)
    theirs = [size["inductor"] for size in row["sizes"]]
    ratios = [mine["ms"] / other["ms"] for mine, other in zip(ours, theirs, strict=True)]
    return (
        *cells, _span([side["new_s"] for side in theirs[1:]], "{:.2f}"),
        f"{statistics.geometric_mean(ratios):.2f} ({_span(ratios, '{:.2f}')})", compared,
    )  # fmt: skip


def table(path):
    """The table of a file, as Markdown."""
    rows = json.loads(path.read_text())["models"]
    machine, commits = rows[0]["machine"], sorted({row["commit"] for row in rows})
    return "\n".join(
        [
            f"{machine['device']}, driver {machine.get('driver', '-')}, PyTorch {machine['pytorch']}, commit "
            f"{', '.join(commits)}; `bench/sizes.py`:",
            "",
            *(f"| {' | '.join(cells)} |" for cells in (HEADS, ["---"] * len(HEADS))),
            *(f"| {' | '.join(_cells(row))} |" for row in rows),
        ]
    )


if __name__ == "__main__":
    table_page.main("bench/sizes_table.py", __doc__, "sizes_*.json", table)
