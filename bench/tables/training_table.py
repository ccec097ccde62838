#!/usr/bin/env python3
"""Writes the table of training steps in docs/benchmarks.md, from the files of bench/results.

  bench/tables/training_table.py            rewrites docs/benchmarks.md
  bench/tables/training_table.py --check    exit status 1 if it would change

A table stands between <!-- training_NAME --> and <!-- /training_NAME -->, with the name of its folder,
which bench/training.py filled.
"""

import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tables import table_page  # noqa: E402

HEADS = [
    "model", "`loss.backward()` ms", "ratio", "GPU time", "host us", "ratio", "whole step ms", "ratio",
    "as one CUDA graph ms", "ratio", "peak MB", "ratio", "gradient error",
]  # fmt: skip


def _value(side, key):
    """The median of a side's figure; None where it has none."""
    found = side.get(key)
    return found.get("median") if isinstance(found, dict) else found


def _least(sides, key):
    found = [value for side in sides if (value := _value(side, key))]
    return min(found) if found else None


class Row:
    """One model: what ours and PyTorch's sides took."""

    def __init__(self, row):
        self.model = row["model"]
        self.sides = {name: s for name, s in row["sides"].items() if "failed" not in s}
        self.ours = self.sides.get("retrograd", {})
        modes = {n: s for n, s in self.sides.items() if n.startswith("retrograd_reduce")}
        self.our_modes = [self.ours, *modes.values()]
        self.theirs = [s for n, s in self.sides.items() if not n.startswith("retrograd")]

    def pair(self, key):
        """(ours, PyTorch's best) of a figure. The whole step is that of the better mode of both, of
        ours only where its forward ran by CUDA graphs as well; the host's time is against CUDA graphs,
        our better mode's, the peak against Inductor's default."""
        if key == "step_ms":
            both = len(self.our_modes) > 1 or "reduce_overhead" not in self.sides
            return _least(self.our_modes, key) if both else None, _least(self.theirs, key)
        if key == "backward_host_us":
            return _least(self.our_modes, key), _least([self.sides.get("reduce_overhead", {})], key)
        against = {"peak_bytes": "inductor"}.get(key)
        theirs = [self.sides.get(against, {})] if against else self.theirs
        return _value(self.ours, key), _least(theirs, key)

    def ratio(self, key):
        ours, theirs = self.pair(key)
        return ours / theirs if ours and theirs else None


def _both(row, key, form, factor=1.0):
    ours, theirs = row.pair(key)
    return " / ".join("-" if v is None else format(v * factor, form) for v in (ours, theirs))


def _ratio(value):
    return "-" if value is None else f"{value:.2f}"


def _errors(row):
    """Ours and Inductor's against float64, the median of all parameters."""
    errors = [row.sides.get(n, {}).get("gradient_errors") for n in ("retrograd", "inductor")]
    return " / ".join(f"{e['median']:.1e}" if e else "-" for e in errors)


def _cells(row):
    return [
        row.model,
        _both(row, "backward_ms", ".2f"), _ratio(row.ratio("backward_ms")),
        _ratio(row.ratio("backward_gpu_ms")),
        _both(row, "backward_host_us", ".0f"), _ratio(row.ratio("backward_host_us")),
        _both(row, "step_ms", ".2f"), _ratio(row.ratio("step_ms")),
        _both(row, "captured_step_ms", ".2f"), _ratio(row.ratio("captured_step_ms")),
        _both(row, "peak_bytes", ".0f", 1e-6), _ratio(row.ratio("peak_bytes")),
        _errors(row),
    ]  # fmt: skip


def table(folder):
    """The table of a folder's files, as Markdown."""
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not files:
        return ""
    machine, commits = files[0]["machine"], sorted({f["commit"] for f in files if f["commit"]})
    rows = [Row(file) for file in files]
    means = {}
    for place, key in ((2, "backward_ms"), (3, "backward_gpu_ms"), (5, "backward_host_us"),
                       (7, "step_ms"), (9, "captured_step_ms"), (11, "peak_bytes")):  # fmt: skip
        found = [ratio for row in rows if (ratio := row.ratio(key))]
        means[place] = f"{statistics.geometric_mean(found):.2f}" if found else "-"
    mean = ["geometric mean", *(means.get(place, "") for place in range(1, len(HEADS)))]
    repeats = " or ".join(map(str, sorted({f["repeat"] for f in files})))
    return "\n".join(
        [
            f"{machine['device']}, driver {machine.get('driver', '-')}, PyTorch {machine['pytorch']}, commit "
            f"{', '.join(commits)}; `bench/training.py`, medians of {repeats}. Ours / PyTorch's best of the "
            "modes that were measured:",
            "",
            *(f"| {' | '.join(cells)} |" for cells in (HEADS, ["---"] * len(HEADS))),
            *(f"| {' | '.join(_cells(row))} |" for row in rows),
            f"| {' | '.join(mean)} |",
        ]
    )


if __name__ == "__main__":
    table_page.main("bench/tables/training_table.py", __doc__, "training_*", table)
