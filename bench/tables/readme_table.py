#!/usr/bin/env python3
"""Writes the tables of README.md that show measurements, from the files of bench/results.

  bench/tables/readme_table.py            rewrites README.md
  bench/tables/readme_table.py --check    exit status 1 if it would change

A table stands between two comments, <!-- NAME --> and <!-- /NAME -->, with the name of its folder,
which bench/run.py filled; the one of training steps (summary_table.py) is called training.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from tables import summary_table  # noqa: E402

MODES = {
    "eager": "eager",
    "inductor": "Inductor",
    "mix_order_reduction_off": "mix-order reductions off",
    "reduce_overhead": "CUDA graphs",
}


def _gb(figures):
    return f"{figures['peak_bytes'] / 1e9:.1f}" if "peak_bytes" in figures else "-"


def _best(row):
    return min(row["pytorch"].items(), key=lambda item: item[1]["gpu_ms"]["median"])


def _times(row):
    """A line of milliseconds and ratios."""
    if row["status"] != "measured":
        reason = row["reason"].split(" (node ")[0]  # the rest says where in the model
        return f"| {row['model']} | {row['status']}: {reason} | | | | | | | |"
    ours = {choice: o["gpu_ms"]["median"] for choice, o in row["ours"].items()}
    theirs = [row["pytorch"].get(mode) for mode in MODES]
    columns = [f"{m['gpu_ms']['median']:.1f}" if m else "-" for m in theirs]
    best = _best(row)[1]["gpu_ms"]["median"]
    default = row["pytorch"].get("inductor", {}).get("gpu_ms", {}).get("median")
    name = row["model"]
    if any(m.get("saved", {}).get("equal") is False for m in row["pytorch"].values()):
        name += " (other saved bytes)"
    against = [f"{ours['deterministic'] / default:.2f}" if default else "-"]
    against.append(f"{ours['deterministic'] / best:.2f}, {ours['nondeterministic'] / best:.2f}")
    cells = [f"{ours['deterministic']:.1f}", f"{ours['nondeterministic']:.1f}", *columns, *against]
    return f"| {name} | {' | '.join(cells)} |"


def _details(row):
    """A line of what there is beside time, ours / PyTorch's best mode."""
    ours = row["ours"]["deterministic"]
    mode, best = _best(row)
    memory = best
    if "peak_bytes" not in best:  # a pool of CUDA graphs has none of its own
        memory = row["pytorch"].get("inductor", best)

    def both(key, form):
        found = [s["kernels"] for s in (ours, best)]
        return " / ".join(form(k[key]) if k else "-" for k in found)

    errors = " / ".join(
        f"{e['worst']:.1e}" if e else "-" for e in (ours.get("errors"), row.get("op_by_op_errors"))
    )
    cells = [
        row["model"],
        both("count", str),
        both("idle", lambda share: f"{100 * share:.1f}%"),
        f"{ours['wall_ms']['median']:.1f} / {best['wall_ms']['median']:.1f}",
        _host(ours),
        f"{_gb(ours)} / {_gb(memory)}",
        errors,
        "yes" if ours["unequal_gradients_of_4_runs"] == 0 else "NO",
        f"{ours['cold']['total_s']:.1f}, {ours['warm']['total_s']:.2f} / "
        f"{_seconds(row['pytorch'].get('inductor', best).get('first_step_s'))}",
        MODES[mode],
    ]
    return f"| {' | '.join(cells)} |"


def _seconds(value):
    return "-" if value is None else f"{value:.0f}"


def _host(ours):
    """Of one run: issued ahead of the device, and after waiting for it."""
    if "run_us" not in ours:
        return f"{ours['host_us']['median']:.0f}"
    return " / ".join(f"{ours['run_us'][kind]['median']:.0f}" for kind in ("ahead", "waited"))


def _norms(rows):
    lines = []
    for row in rows:
        for name, norm in row.get("norms", {}).items():
            lines.append(
                f"| {name} | {norm['measured_us']:.1f} us | {norm['predicted_us']:.1f} us | "
                f"{norm['floor_us']:.1f} us |"
            )
    if not lines:
        return []
    head = "| norm, dx and dweight, bf16 | measured | predicted | 6 bytes an element at 4.41 TB/s |"
    return ["", head, "|---|---|---|---|", *lines]


def backward_table(rows):
    """The tables of a list of bench/run.py's rows."""
    machine = rows[0]["machine"]
    models = [r for r in rows if "norms" not in r]
    commits = ", ".join(sorted({r["key"]["commit"] for r in rows if r["key"]["commit"]}))
    lines = [
        f"{machine['device']}, driver {machine.get('driver', '-')}, PyTorch "
        f"{machine.get('pytorch', '-')}, commit {commits or 'unknown'}; `make bench`, medians of "
        f"{rows[0]['key']['repeat']}. GPU time of the backward in ms, the host hidden on both "
        "sides:",
        "",
        "| backward | ours | ours, `--nondeterministic` | "
        + " | ".join(MODES.values())
        + " | ours / Inductor | ours / PyTorch's best |",
        "|---|---|---|---|---|---|---|---|---|",
        *[_times(r) for r in models],
    ]
    measured = [r for r in models if r["status"] == "measured" and r["pytorch"]]
    if measured:
        lines += [
            "",
            "Ours (deterministic) / PyTorch's best mode; what each column is: "
            "[docs/benchmarks.md](docs/benchmarks.md).",
            "",
            "| backward | kernels | GPU idle | wall ms | our host us | peak GB | "
            "worst gradient error | equal bits | plan + compile s: cold, warm / Inductor's first step | "
            "best mode |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *[_details(r) for r in measured],
        ]
    return "\n".join(lines + _norms(rows))


def rows_of(folder):
    """The rows of a folder, in the order in which bench/run.py measures."""
    rows = [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))]
    order = {"measured": 0, "refused": 1, "skipped": 2}
    return sorted(rows, key=lambda r: (order[r["status"]], -_weight(r), r["model"]))


def _weight(row):
    return row["ours"]["deterministic"]["gpu_ms"]["median"] if "ours" in row else 0


BACKWARD = "backward_nvidia_h200"


def _replaced(text, name, table):
    pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"README.md has no <!-- {name} --> ... <!-- /{name} --> for the table")
    return pattern.sub(lambda m: f"{m.group(1)}{table}\n{m.group(2)}", text)


def rewritten(text):
    rows = rows_of(ROOT / "bench" / "results" / BACKWARD)
    text = _replaced(text, BACKWARD, backward_table(rows))
    return _replaced(text, "training", summary_table.table())


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
        sys.exit(
            "README.md is not what bench/tables/readme_table.py makes of bench/results: run it"
        )
    if new != old:
        readme.write_text(new)


if __name__ == "__main__":
    main()
