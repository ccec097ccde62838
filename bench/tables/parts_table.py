#!/usr/bin/env python3
"""Writes the table of what the parts of small backwards are worth, in docs/benchmarks.md.

  bench/tables/parts_table.py            rewrites docs/benchmarks.md
  bench/tables/parts_table.py --check    exit status 1 if it would change

A table stands between <!-- parts_NAME --> and <!-- /parts_NAME -->, with the name of its folder, which
bench/training.py filled: for each model the side "retrograd" and those of PARTS.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tables import table_page  # noqa: E402

# Sides of bench/training.py by what they leave out.
PARTS = {
    "retrograd": "nothing",
    "retrograd_python": "autograd's node in C++",
    "retrograd_unmerged": "shared launches",
    "retrograd_one_stream": "side streams",
    "retrograd_late_launches": "early launches",
    "retrograd_cudnn": "convolutions of our own",
}
HEADS = ["model", "without", "host us", "GPU ms", "kernels ms", "gaps ms", "launches"]


def _cells(model, without, side):
    gpu, busy = side["backward_gpu_ms"]["median"], side["kernels"]["busy_ms"]
    return [
        model, without, f"{side['backward_host_us']['median']:.0f}", f"{gpu:.3f}", f"{busy:.3f}",
        f"{gpu - busy:.3f}", str(side["kernels"]["count"]),
    ]  # fmt: skip


def table(folder):
    """The table of a folder's files, as Markdown."""
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not files:
        return ""
    machine, commits = files[0]["machine"], sorted({f["commit"] for f in files if f["commit"]})
    rows = [
        _cells(file["model"], without, file["sides"][side])
        for file in files
        for side, without in PARTS.items()
        if "failed" not in file["sides"].get(side, {"failed": ""})
    ]
    return "\n".join(
        [
            f"{machine['device']}, driver {machine.get('driver', '-')}, PyTorch {machine['pytorch']}, commit "
            f"{', '.join(commits)}; `bench/training.py`, medians of {files[0]['repeat']}:",
            "",
            *(f"| {' | '.join(cells)} |" for cells in (HEADS, ["---"] * len(HEADS), *rows)),
        ]
    )


if __name__ == "__main__":
    table_page.main("bench/tables/parts_table.py", __doc__, "parts_*", table)
