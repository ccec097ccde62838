#!/usr/bin/env python3
"""Writes the table of docs/benchmarks.md that says what each optional part is worth.

  bench/tables/ablation_table.py            rewrites docs/benchmarks.md
  bench/tables/ablation_table.py --count    before that, counts the code of each part here
  bench/tables/ablation_table.py --check    exit status 1 if it would change

The table stands between <!-- NAME --> and <!-- /NAME -->, NAME being bench/results/NAME.json, which
bench/ablate.py wrote.
"""

import argparse
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from measure import ablation_parts  # noqa: E402

PAGE = ROOT / "docs/benchmarks.md"


def ratio(row, part, off=False):
    """Time without a part / time with it; None where that is not known. `off`: of a part that is
    off by default, without which the whole program is."""
    figures = row["without"].get(part, {})
    if figures.get("same"):
        return 1.0
    value = figures.get("ratio")
    return 1 / value if off and value else value


def geometric_mean(values):
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _memory(row, part):
    """Bytes of the arena without a part / with all; None where there is none."""
    figures, whole = row["without"].get(part, {}), row["whole"]
    if figures.get("same"):
        return 1.0
    with_all, without = whole.get("arena_bytes"), figures.get("arena_bytes")
    return without / with_all if with_all and without else None


def _extreme(ratios, choose):
    model, value = choose(ratios.items(), key=lambda item: item[1])
    return f"{value:.3f}" if abs(value - 1) < 5e-4 else f"{value:.3f} {model}"


def part_line(result, part):
    off = part in ablation_parts.PARTS and ablation_parts.PARTS[part].off
    found = {row["model"]: ratio(row, part, off) for row in result["models"]}
    ratios = {model: value for model, value in found.items() if value}
    changed = sum(not row["without"].get(part, {}).get("same") for row in result["models"])
    deleted = ablation_parts.DELETED.get(part)
    lines = deleted or result.get("lines", {}).get("of", {}).get(part)
    cells = [
        f"{part}, deleted" if deleted else part,
        "-" if lines is None else str(lines),
        f"{changed} of {len(found)}",
    ]
    if ratios:
        cells += [
            f"{geometric_mean(ratios.values()):.3f}",
            _extreme(ratios, max),
            _extreme(ratios, min),
        ]
    else:
        cells += ["-", "-", "-"]
    memory = geometric_mean(_memory(row, part) for row in result["models"])
    unknown = len(found) - len(ratios)
    cells += ["-" if memory is None else f"{memory:.2f}", str(unknown or "")]
    return f"| {' | '.join(cells)} |"


def table(result):
    machine = result["machine"]
    whole = [
        f"{row['model']} {1e3 * row['whole']['gpu_ms']['median']:.0f}"
        for row in result["models"]
        if "gpu_ms" in row["whole"]
    ]
    return [
        f"{machine['device']}, driver {machine.get('driver', '-')}, PyTorch {machine['pytorch']}, "
        f"commit {result['commit']}; `{result['command']}`, medians of {result['repeat']}. Time "
        f"without / with; above 1 the part pays. {len(result['models'])} models, us with "
        f"all parts: {', '.join(whole)}.",
        "",
        "| part | lines | programs change | geometric mean | most | least | memory | unknown |",
        "|---|---|---|---|---|---|---|---|",
        *(part_line(result, part) for part in result["parts"]),
    ]


def parts_table():
    lines = ["| part | switched by | then |", "|---|---|---|"]
    for name, part in ablation_parts.PARTS.items():
        words = []
        for option, value in part.options.items():
            words += (
                [f"`--{option} {v}`" for v in value]
                if isinstance(value, list)
                else [f"`{option}: {json.dumps(value)}`"]
            )
        lines.append(
            f"| {name}{', off by default' if part.off else ''} | {' '.join(words)} | {part.then} |"
        )
    return lines


def rewritten(page):
    def fill(match):
        if match[1] == "ablation_parts":
            return "\n".join(
                ["<!-- ablation_parts -->", *parts_table(), "<!-- /ablation_parts -->"]
            )
        path = ROOT / "bench/results" / f"{match[1]}.json"
        if not path.exists():  # not measured yet
            return match[0]
        lines = table(json.loads(path.read_text()))
        return "\n".join([f"<!-- {match[1]} -->", *lines, f"<!-- /{match[1]} -->"])

    return re.sub(r"<!-- (ablation_\w+) -->.*?<!-- /\1 -->", fill, page, flags=re.S)


def count():
    """Writes into each result how long the code of its parts is here."""
    from run import commit

    for path in (ROOT / "bench/results").glob("ablation_*.json"):
        result = json.loads(path.read_text())
        known = ablation_parts.PARTS
        result["lines"] = {
            "commit": commit(),
            "of": {
                part: ablation_parts.lines_of(known[part], ROOT)
                for part in result["parts"]
                if part in known and known[part].code
            },
        }
        path.write_text(json.dumps(result, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    if options.count:
        count()
    before = PAGE.read_text()
    after = rewritten(before)
    if options.check:
        sys.exit(
            after != before
            and f"{PAGE}: a table is not that of its file: bench/tables/ablation_table.py"
        )
    PAGE.write_text(after)


if __name__ == "__main__":
    main()
