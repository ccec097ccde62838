#!/usr/bin/env python3
"""Writes the table of docs/benchmarks.md of the three optimisations that compilers lose first where
sizes vary: wide vectors, split reductions, persistent reductions.

  bench/tables/three_parts_table.py            rewrites the page
  bench/tables/three_parts_table.py --check    exit status 1 if it would change

The files are bench/results/three_parts_<GPU>.json, which bench/ablate.py wrote of static:... and
dynamic:... graphs (bench/workloads/sized_graphs.py), with the parts of PARTS.
"""

import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tables import table_page  # noqa: E402

PARTS = (
    "alignment and divisibility",
    "split reductions",
    "persistent reductions",
    "the three together",
)
# What the ablation study says of these three, in its order: a speed-up, and what is left of it.
STUDY = ((1.40, 1.33), (1.35, 1.11), (1.15, 1.08))


def _ratio(row, part):
    """Time without / with, and whether it is a prediction; None where neither is known."""
    figures = row["without"].get(part, {})
    if figures.get("same"):
        return 1.0, False
    if "ratio" in figures:
        return figures["ratio"], False
    predicted = figures.get("predicted_ratio")
    return None if predicted is None else (predicted, True)


def _cell(found):
    if found is None:
        return "-"
    ratio, predicted = found
    return f"{ratio:.3f} predicted" if predicted else f"{ratio:.3f}"


def _mean(rows, part):
    found = [ratio for ratio in (_ratio(row, part) for row in rows) if ratio]
    if not found:
        return None
    return statistics.geometric_mean(r for r, _ in found), any(p for _, p in found)


def _ms(row):
    measured = row["whole"].get("gpu_ms")
    if measured:
        return f"{measured['median']:.2f}"
    return f"{row['whole']['predicted_us'] / 1e3:.2f} predicted"


def _group(name):
    """The graph that a model's name tells: models of one graph stand together."""
    return name.partition(":")[2].rpartition("@")[0].rpartition("/")[2]


def lines(result):
    machine = result["machine"]
    heads = ["graph", "sizes", "ms", *(f"without {part}" for part in PARTS)]
    measured = any("gpu_ms" in row["whole"] for row in result["models"])
    of = f"{machine['device']}, driver {machine.get('driver', '-')}, PyTorch {machine['pytorch']}, "
    out = [
        f"{of if measured else 'Predicted by the cost model, nothing measured; '}commit "
        f"{result['commit']}; `{result['command']}`"
        + (f", medians of {result['repeat']}." if measured else "."),
        "",
        f"| {' | '.join(heads)} |",
        "|" + "---|" * len(heads),
    ]
    models = result["models"]
    rows = sorted(models, key=lambda row: (_group(row["model"]), row["sizes"] != "static"))
    for row in rows:
        bound = row["model"].rpartition("@")[2].replace(",", ", ")
        cells = [_group(row["model"]), f"{row['sizes']}, {bound}", _ms(row)]
        out.append(f"| {' | '.join(cells + [_cell(_ratio(row, part)) for part in PARTS])} |")
    for sizes in ("static", "dynamic"):
        of_kind = [row for row in rows if row["sizes"] == sizes]
        if of_kind:
            cells = ["geometric mean", sizes, "", *(_cell(_mean(of_kind, part)) for part in PARTS)]
            out.append(f"| {' | '.join(cells)} |")
    study = ", ".join(f"{before:.2f} → {after:.2f}" for before, after in STUDY)
    return [*out, f"| the study's speed-ups |  |  |  |  |  | {study} |"]


def table(path):
    return "\n".join(lines(json.loads(path.read_text())))


if __name__ == "__main__":
    table_page.main("bench/tables/three_parts_table.py", __doc__, "three_parts_*.json", table)
