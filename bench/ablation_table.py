#!/usr/bin/env python3
"""Writes the table of docs/benchmarks.md that says what each part of the planner is worth.

  bench/ablation_table.py            rewrites docs/benchmarks.md
  bench/ablation_table.py --check    exit status 1 if it would change

The table stands between <!-- NAME --> and <!-- /NAME -->, NAME being bench/results/NAME.json, which
bench/ablate.py wrote.
"""

import argparse
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/benchmarks.md"
ALL = "all of them"


def ratio(row, name):
    """Time without a part / time of the whole; None where it was refused."""
    whole, without = row["variants"]["whole"], row["variants"].get(name, {})
    if "gpu_ms" not in whole or "gpu_ms" not in without:
        return None
    return without["gpu_ms"]["median"] / whole["gpu_ms"]["median"]


def geometric_mean(values):
    values = [v for v in values if v is not None]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _cell(value):
    return "refused" if value is None else f"{value:.3f}"


def table(result):
    rows = result["models"]
    parts = list(result["parts"])
    machine = result["machine"]
    lines = [
        f"{machine['device']}, driver {machine.get('driver', '-')}, commit {result['commit']}; "
        f"`make bench-ablate`, medians of {result['repeat']}. Time without / with; above 1 the part pays.",
        "",
        f"| without | {' | '.join(r['model'] for r in rows)} | geometric mean |",
        "|---" * (len(rows) + 2) + "|",
    ]
    product = {r["model"]: 1.0 for r in rows}
    for part in [*parts, ALL]:
        ratios = [ratio(r, part) for r in rows]
        if part != ALL:
            for r, value in zip(rows, ratios):
                product[r["model"]] *= value or 1.0
        cells = [*map(_cell, ratios), _cell(geometric_mean(ratios))]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    cells = [*map(_cell, product.values()), _cell(geometric_mean(product.values()))]
    lines.append(f"| product of the single ones | {' | '.join(cells)} |")
    whole = [r["variants"]["whole"].get("gpu_ms", {}).get("median") for r in rows]
    cells = ["-" if w is None else f"{w:.2f}" for w in whole]
    lines.append(f"| with all, ms | {' | '.join(cells)} | |")
    return lines


def rewritten(page):
    def fill(match):
        path = ROOT / "bench/results" / f"{match[1]}.json"
        if not path.exists():  # not measured yet
            return match[0]
        lines = table(json.loads(path.read_text()))
        return "\n".join([f"<!-- {match[1]} -->", *lines, f"<!-- /{match[1]} -->"])

    return re.sub(r"<!-- (ablation_\w+) -->.*?<!-- /\1 -->", fill, page, flags=re.S)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    before = PAGE.read_text()
    after = rewritten(before)
    if options.check:
        sys.exit(after != before and f"{PAGE}: a table is not that of its file: bench/ablation_table.py")
    PAGE.write_text(after)


if __name__ == "__main__":
    main()
