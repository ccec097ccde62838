#!/usr/bin/env python3
"""Writes the tables of README.md that show measurements, from the files of bench/results.

  bench/readme_table.py            rewrites README.md
  bench/readme_table.py --check    exit status 1 if it would change

A table stands between two comments, <!-- NAME --> and <!-- /NAME -->, with the name of its file.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def backward_table(result):
    """Milliseconds of whole backwards, and of single norms in microseconds."""
    lines = [
        f"{result['gpu']}, driver {result['driver']}, PyTorch {result['pytorch']}, commit {result['commit']}; "
        "medians of one run of `bench/compare_backward.py`.",
        "",
        "| backward | ours | ours, `--nondeterministic` | Inductor | Inductor, mix-order reductions off | ours / its best |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["models"]:
        torch = row["pytorch"]
        free = row["ours_nondeterministic"]
        lines.append(
            f"| {row['model']} | {row['ours']['median_ms']:.1f} ms | {free['median_ms']:.1f} ms | "
            f"{torch['default']['median_ms']:.1f} ms | {torch['mix_order_reduction_off']['median_ms']:.1f} ms | "
            f"{row['ours']['ratio_to_best']:.2f}, {free['ratio_to_best']:.2f} |"
        )
    lines += ["", "| norm, dx and dweight, bf16 | measured | predicted |", "|---|---|---|"]
    for name, norm in result["norms"].items():
        lines.append(f"| {name} | {norm['measured_us']:.1f} us | {norm['predicted_us']:.1f} us |")
    return "\n".join(lines)


TABLES = {"backward_h200": backward_table}


def rewritten(text):
    for name, table in TABLES.items():
        result = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())
        pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            sys.exit(f"README.md has no <!-- {name} --> ... <!-- /{name} --> for the table")
        text = pattern.sub(lambda m: f"{m.group(1)}{table(result)}\n{m.group(2)}", text)
    return text


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = rewritten(old)
    if options.check and new != old:
        sys.exit("README.md is not what bench/readme_table.py makes of bench/results: run it")
    if new != old:
        readme.write_text(new)


if __name__ == "__main__":
    main()
