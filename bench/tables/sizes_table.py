#!/usr/bin/env python3
"""Writes the tables of changing sizes in docs/benchmarks.md, from bench/results/sizes_<GPU>.json.

bench/tables/sizes_table.py            rewrites the page
bench/tables/sizes_table.py --check    exit status 1 if it would change
"""

import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tables import table_page  # noqa: E402

HEADS = (
    "model", "sizes", "new size, s", "Inductor, s", "seen size, ratio to Inductor", "to own kernels",
)  # fmt: skip


MOST_NAMED = 12  # sizes of a row that are listed


def _span(values, form):
    return f"{form.format(min(values))} to {form.format(max(values))}"


def _new(sides):
    """Seconds of new sizes. The first size's hold what is compiled for all."""
    seconds = [side["new_s"] for side in sides[1:]]
    span = _span(seconds, "{:.2f}")
    return f"{statistics.median(seconds):.2f} ({span})" if len(sides) > MOST_NAMED else span


def _listed(sizes):
    if len(sizes) > MOST_NAMED:
        return f"{len(sizes)} of {min(sizes)} to {max(sizes)}"
    return ", ".join(map(str, sizes))


def _ratios(mine, others):
    ratios = [one / other for one, other in zip(mine, others, strict=True)]
    return statistics.geometric_mean(ratios), ratios


def _cells(row):
    ours = [size["ours"] for size in row["sizes"]]
    theirs = [size["inductor"] for size in row["sizes"]]
    fails = "inductor" in row["errors"]
    alone = "new_s" not in theirs[1]  # ours was measured alone
    cells = [
        row["model"], _listed([size["size"] for size in row["sizes"]]), _new(ours),
        "fails" if fails else "-" if alone else _new(theirs), "-", "-",
    ]  # fmt: skip
    if "ms" in ours[0]:  # else new sizes were measured alone
        mine = [side["ms"] for side in ours]
        if not fails and not alone:
            mean, all_of_them = _ratios(mine, [side["ms"] for side in theirs])
            cells[4] = f"{mean:.2f} ({_span(all_of_them, '{:.2f}')})"
        # Run the same way as those of its own.
        mine = [side.get("by_python_ms", side["ms"]) for side in ours]
        mean, all_of_them = _ratios(mine, [side["own_ms"] for side in ours])
        cells[5] = f"{mean:.3f} ({_span(all_of_them, '{:.2f}')})"
    return cells


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
    table_page.main("bench/tables/sizes_table.py", __doc__, "sizes_*.json", table)
