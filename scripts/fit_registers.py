#!/usr/bin/env python3
"""Fits the register models of device specs to a table that `register-table --json` wrote.

    scripts/fit_registers.py bench/results/registers_nvrtc.json fusion/devices/h200.textproto ...
    scripts/fit_registers.py --launch "row_reduction persistent" bench/results/registers_walks.json \\
        fusion/devices/h200.textproto ...
    scripts/fit_registers.py --slack bench/results/registers_norms.json fusion/devices/h200.textproto ...

For each kind of launch the counts that explain most of the relative error are chosen one after the
other, each with a coefficient that is not negative; the error is weighed towards its median, so that
few odd kernels do not bend the rest. The blocks `registers { ... }` of the device files are replaced,
but for their models of long kernels, which this script does not fit.
With --launch only the models of those kinds of launch are fitted, and the others stay.
With --slack the coefficients stay, and the slack of each kind is fitted: how far above the cap the
expected registers may lie, and the share of such kernels that spill all the same. Needs numpy; the
same table gives the same numbers.
"""
import argparse
import json
import re
import sys

import numpy as np

MOST_TERMS = 6        # of a launch, beside the constant
LEAST_GAIN = 0.985    # a term must lower the badness to this share
LEAST_PER_TERM = 12   # kernels
BEST_PLAN = 10        # weight of a kernel of a graph's best plan: what is run counts most
GUARDS = 13           # places among the counts
LIVE_WORDS, COLUMN_SUMS = 5, 10
LEAST_MARGIN = 0.05   # of spills, where none was seen
# Registers a guard of persistent kernels, where no guarded one spilled in this table: kernels with 50
# guards a point have spilled, but few plans hold one.
LEAST_PER_GUARD = 0.27
MARGIN_BEYOND = 0.03  # added to the margin that the spills seen need
# Of spills where rows lie in shared memory, of which the tables hold few: nothing needed more than 8%
# above what was expected.
STAGED_MARGIN = 0.10
# The slack: steps that are tried, the fewest kernels that tell, and the largest share that may spill.
SLACKS = [step / 100 for step in range(3, 34, 2)]
LEAST_IN_SLACK = 12
MOST_SPILLING = 0.4
LEAST_CHANCE = 0.02
SURELY_FITS = 0.05  # so far below its cap no kernel is in doubt


def nnls(a, b):
    """min |a x - b|, x >= 0 (Lawson and Hanson's active sets)."""
    n = a.shape[1]
    ata, atb = a.T @ a, a.T @ b
    x, passive = np.zeros(n), np.zeros(n, bool)
    for _ in range(10 * n):
        w = atb - ata @ x
        if passive.all() or w[~passive].max() <= 1e-9:
            break
        passive[np.argmax(np.where(passive, -np.inf, w))] = True
        while True:
            s = np.zeros(n)
            s[passive] = np.linalg.lstsq(ata[np.ix_(passive, passive)], atb[passive], rcond=None)[0]
            if s[passive].min() > 0:
                break
            low = passive & (s <= 0)
            step = np.min(x[low] / (x[low] - s[low] + 1e-30))
            x = x + step * (s - x)
            passive &= x > 1e-12
        x = s
    return x


def robust(a, y, cap, care, rounds):
    """Relative least absolute deviations, by reweighting. At the cap any larger value is right;
    kernels that spill have an infinite cap."""
    weight = np.sqrt(care) / y
    x = None
    for _ in range(rounds):
        x = nnls(a * weight[:, None], y * weight)
        value = a @ x
        error = np.abs(value - y) / y
        weight = np.sqrt(care / np.maximum(error, 0.02)) / y
        weight[(y >= cap * 0.97) & (value >= y)] *= 1e-3
    return x


def badness(a, x, y, cap, care):
    """Mean relative error, and the mean square of its logarithm: being far off counts more."""
    value = np.maximum(np.minimum(np.rint(a @ x), cap), 1)
    return np.average(np.abs(value - y) / y + 2 * np.log(value / y) ** 2, weights=care)


def fit(names, counts, y, cap, care):
    """The chosen counts' columns and their coefficients."""
    usable = [j for j in range(1, len(names)) if counts[:, j].std() > 0]
    chosen, best = [0], None
    while len(chosen) <= MOST_TERMS and LEAST_PER_TERM * len(chosen) < len(y):
        trials = []
        for j in usable:
            if j in chosen:
                continue
            a = counts[:, chosen + [j]]
            trials.append((badness(a, robust(a, y, cap, care, 8), y, cap, care), j))
        if not trials:
            break
        mean, j = min(trials)
        if best is not None and mean > best * LEAST_GAIN:
            break
        best = mean
        chosen.append(j)
    x = robust(counts[:, chosen], y, cap, care, 30)
    return [(j, v) for j, v in zip(chosen, x) if v >= 5e-4]


def spill_margins(value, cap, guards):
    """The share and the registers a guard that lift all kernels that spilled above their caps. What
    guarded kernels need is asked of their guards, so that others are not refused for them."""
    short = cap * (1 + MARGIN_BEYOND) - value * (1 + LEAST_MARGIN)
    guarded = (guards > 0) & (short > 0)
    plain = (guards == 0) & (short > 0)
    per_guard = np.max(short[guarded] / guards[guarded], initial=0)
    margin = np.max(cap[plain] / value[plain] - 1 + MARGIN_BEYOND, initial=LEAST_MARGIN)
    return np.ceil(margin * 100) / 100, np.ceil(per_guard * 100) / 100


def predict(rows, column, launch, value, margin, per_guard):
    """Fills the predictions of one kind of launch in, as fusion/kernel/templates/registers.cc makes them, and
    returns the kind's line of errors."""
    off, spills, foretold, surprises = [], 0, 0, 0
    for row, v in zip(rows, value):
        cap, real, spilled = (row[column[c]] for c in ("cap", "registers", "spill_bytes"))
        expected = int(np.floor(v + 0.5))
        cautious = expected * (1 + margin) + per_guard * row[column["counts"]][GUARDS]
        row[column["expected"]] = expected
        row[column["predicted"]] = cap if int(cautious) > cap else min(expected, cap)
        off.append(abs(row[column["predicted"]] - real) / real)
        spills += spilled > 0
        foretold += int(cautious) > cap
        surprises += spilled > 0 and int(cautious) <= cap
    off.sort()
    n = len(off)
    return {"launch": launch, "kernels": n, "median": round(off[n // 2], 4),
            "percentile_90": round(off[n * 9 // 10], 4), "worst": round(off[-1], 4),
            "spills": spills, "spills_predicted": foretold, "surprises": surprises}


def write_table(path, table, errors_of):
    table["errors"] = errors_of
    head = {k: v for k, v in table.items() if k != "kernels"}
    text = json.dumps(head, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in table["kernels"])
    with open(path, "w") as f:
        f.write(text + ',\n "kernels": [\n' + lines + "\n ]\n}\n")


def fit_slack(rows, column, staged):
    """(slack, chance) of one kind's kernels whose rows lie in shared memory, or not; None where too
    few are expected to exceed their caps, or too many of those spill."""
    ratios = []
    for row in rows:
        counts = row[column["counts"]]
        held = counts[COLUMN_SUMS] + counts[LIVE_WORDS]
        if bool(counts[-1]) != staged or held > row[column["cap"]]:
            continue
        ratio = row[column["expected"]] / row[column["cap"]] - 1
        if ratio > -SURELY_FITS:
            ratios.append((ratio, row[column["spill_bytes"]] > 0))
    best = None
    for slack in SLACKS:
        inside = [spilled for ratio, spilled in ratios if ratio <= slack]
        if len(inside) < LEAST_IN_SLACK:
            continue
        share = sum(inside) / len(inside)
        if share <= MOST_SPILLING:
            best = slack, max(round(share, 2), LEAST_CHANCE), len(inside)
    return best


def with_long_model(block, text):
    """The block with the model of long kernels that the device file's text has for its launch."""
    launch = re.search(r'^  launch: ".*"\n', block, re.M).group()
    old = re.search(r"^registers \{\n" + re.escape(launch) + r".*?^\}", text, re.S | re.M)
    lines = re.findall(r"^  long_\w+: .*\n", old.group(), re.M) if old else []
    return block[:-1] + "".join(lines) + "}"


def with_model(text, block):
    """The device file's text with this block in the place of that of its kind of launch, whose slack
    it keeps."""
    launch = re.search(r'^  launch: ".*"\n', block, re.M).group()
    old = re.search(r"^registers \{\n" + re.escape(launch) + r".*?^\}", text, re.S | re.M)
    if old is None:
        return text.rstrip("\n") + "\n" + block + "\n"
    slack = re.findall(r"^  (?:staged_)?spill_(?:slack|chance): .*\n", old.group(), re.M)
    return text[:old.start()] + block[:-1] + "".join(slack) + "}" + text[old.end():]


def with_slack(text, launch, fields):
    """The device file's text with these fields in the launch's block, in the place of older ones."""
    block = re.search(r'^registers \{\n  launch: "' + launch + r'"\n.*?^\}', text, re.S | re.M)
    if block is None:
        return text
    kept = re.sub(r"^  (staged_)?spill_(slack|chance): .*\n", "", block.group(), flags=re.M)
    lines = "".join(f"  {name}: {value:.2f}\n" for name, value in fields)
    return text[:block.start()] + kept[:-1] + lines + "}" + text[block.end():]


def write_slacks(table, devices):
    column = {name: i for i, name in enumerate(table["columns"])}
    assert table["counts"][COLUMN_SUMS] == "column_sums" and table["counts"][-1] == "staged"
    launches = {}
    for row in table["kernels"]:
        launches.setdefault(row[column["launch"]], []).append(row)
    slacks = {}
    for launch, rows in sorted(launches.items()):
        fields = []
        for staged, prefix in ((False, ""), (True, "staged_")):
            fitted = fit_slack(rows, column, staged)
            if fitted is None:
                continue
            slack, chance, kernels = fitted
            fields += [(prefix + "spill_slack", slack), (prefix + "spill_chance", chance)]
            print(f"{launch:25s} {prefix}slack {slack:.2f}, {chance:.0%} of {kernels} kernels spill",
                  file=sys.stderr)
        slacks[launch] = fields
    for path in devices:
        with open(path) as f:
            text = f.read()
        for launch, fields in slacks.items():
            text = with_slack(text, launch, fields)
        with open(path, "w") as f:
            f.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("devices", nargs="*")
    parser.add_argument("--rewrite", action="store_true",
                        help="put the fitted models' predictions and errors into the table")
    parser.add_argument("--slack", action="store_true", help="fit the slack alone")
    parser.add_argument("--launch", action="append", metavar="KIND",
                        help="fit this kind of launch alone; repeatable")
    arguments = parser.parse_args()
    with open(arguments.table) as f:
        table = json.load(f)
    if arguments.slack:
        write_slacks(table, arguments.devices)
        return
    names = table["counts"]
    assert names[GUARDS] == "guards"
    column = {name: i for i, name in enumerate(table["columns"])}
    launches = {}
    for row in table["kernels"]:
        launches.setdefault(row[column["launch"]], []).append(row)
    launches.pop("shared", None)  # as wide as their widest kernel: nothing to fit
    if arguments.launch:
        unknown = sorted(set(arguments.launch) - set(launches))
        if unknown:
            parser.error(f"{arguments.table} has no launch of kind {', '.join(unknown)}")
        launches = {kind: rows for kind, rows in launches.items() if kind in arguments.launch}
    blocks, errors_of = [], []
    for launch, rows in sorted(launches.items()):
        counts = np.array([r[column["counts"]] for r in rows], float)
        y = np.array([r[column["registers"]] for r in rows], float)
        cap = np.array([r[column["cap"]] for r in rows], float)
        spill = np.array([r[column["spill_bytes"]] for r in rows], float)
        spilled = spill > 0
        # What spills wanted more than the cap: the fit sees how much.
        wanted, limit = y + spill / 4, np.where(spilled, np.inf, cap)
        care = np.array([BEST_PLAN if r[column["best_plan"]] else 1 for r in rows], float)
        terms = fit(names, counts, wanted, limit, care)
        value = sum(round(v, 3) * counts[:, j] for j, v in terms)
        e = np.sort(np.abs(np.minimum(np.rint(value), cap) - y) / y)
        guards = counts[:, names.index("guards")]
        margin, per_guard = spill_margins(value[spilled], cap[spilled], guards[spilled])
        if launch.endswith("persistent"):
            per_guard = max(per_guard, LEAST_PER_GUARD)
        refused = value * (1 + margin) + per_guard * guards > cap
        print(f"{launch:25s} {len(y):5d} kernels  median {np.median(e):6.1%}  "
              f"90% {e[len(e) * 9 // 10]:6.1%}  worst {e[-1]:6.0%}  spill margin {margin:.2f} + {per_guard:.2f} a guard  "
              f"spilled {spilled.sum()}  refused without need {(refused & ~spilled).sum()}",
              file=sys.stderr)
        source = (f"fitted to {table['compiler']}, {table['arch']}: {len(y)} kernels, "
                  f"median error {np.median(e):.1%}, 90% within {e[len(e) * 9 // 10]:.1%}")
        lines = [f'registers {{\n  launch: "{launch}"\n  source: "{source}"']
        lines += [f"  {names[j]}: {v:.3f}" for j, v in terms]
        lines.append(f"  spill_margin: {margin:.2f}")
        if per_guard > 0:
            lines.append(f"  spill_guards: {per_guard:.2f}")
        if launch == "row_column persistent":
            lines.append(f"  staged_spill_margin: {STAGED_MARGIN:.2f}")
        lines.append("}")
        blocks.append("\n".join(lines))
        errors_of.append(predict(rows, column, launch, value, margin, per_guard))
    if arguments.rewrite:
        kept = [e for e in table["errors"] if e["launch"] not in launches]
        write_table(arguments.table, table, errors_of + kept)
    for path in arguments.devices:
        with open(path) as f:
            text = f.read()
        written = [with_long_model(block, text) for block in blocks]
        if arguments.launch:
            for block in written:
                text = with_model(text, block)
        else:
            text = re.sub(r"\n*^registers \{.*?^\}", "", text, flags=re.S | re.M).rstrip("\n")
            text += "\n\n" + "\n".join(written) + "\n"
        with open(path, "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
