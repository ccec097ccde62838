#!/usr/bin/env python3
"""How many instructions planning takes, by two builds: a figure that other work on the machine
leaves as it is.

  bench/planning_instructions.py --before OLD/bench-plan --after build/release/bin/bench-plan \\
      --commits OLD,NEW --out bench/results/instructions_of_planning.json GRAPH.bwd.pb [..]

Counts user instructions of PlanFusion with valgrind's callgrind, prices of --spec, without
decisions, and those of its parts: functions with what they call, each call once.
"""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile

PARTS = {
    "building kernels": ("retrograd::BuildKernel(",),
    "listing schedules": ("retrograd::CandidateSchedules(",),
    "counting what a kernel moves and computes": ("retrograd::KernelWork::KernelWork(",),
    "prices of schedules": (
        "retrograd::KernelPricer::Of(",
        "retrograd::KernelPricer::FootprintOf(",
    ),
    "states of the exact search": ("retrograd::ExactSearch::Run::Expand(",),
    "greedy merging, kernels built for it among it": ("retrograd::MergeGreedily(",),
    "versions of the graph with other matmuls merged": ("retrograd::PriceGraph(",),
    "layouts, calls and regions of all versions": ("retrograd::PlanningContext::Make(",),
    "lowering": ("retrograd::LowerAndLayOut(",),
}
COUNTS = {"kernels priced": ("retrograd::GroupPricer::EvaluateNew(",)}


class Profile:
    """The calls of a callgrind file: instructions and numbers of calls, by caller and callee."""

    def __init__(self, path):
        self.names, self.calls = {}, {}
        caller = callee = None
        lines = iter(pathlib.Path(path).read_text().splitlines())
        for line in lines:
            if line.startswith("fn="):
                caller = self.name(line[3:])
            elif line.startswith("cfn="):
                callee = self.name(line[4:])
            elif line.startswith("calls="):
                times = int(line[6:].split()[0])
                instructions = int(next(lines).split()[1])
                known = self.calls.get((caller, callee), (0, 0))
                self.calls[caller, callee] = (known[0] + instructions, known[1] + times)
            elif line.startswith("totals:"):
                self.total = int(line.split()[1])

    def name(self, text):
        number, name = re.match(r"\((\d+)\)(?: (.*))?$", text).groups()
        if name:
            self.names[number] = re.sub(r"'\d+$", "", name)
        return self.names[number]

    def of(self, functions):
        """Instructions and calls of functions whose names begin so, without calls among them."""
        instructions = times = 0
        for (caller, callee), (spent, calls) in self.calls.items():
            if callee.startswith(functions) and not caller.startswith(functions):
                instructions, times = instructions + spent, times + calls
        return instructions, times


def count(binary, graph, spec):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind"
        command = ["valgrind", "--tool=callgrind", "--toggle-collect=retrograd::PlanFusion(*"]
        command += [f"--callgrind-out-file={out}", binary, "--runs", "1", "--spec", spec]
        subprocess.run([*command, "--run-file", graph], check=True, capture_output=True)
        return Profile(out)


def row(graph, options):
    before, after = (count(b, graph, options.spec) for b in (options.before, options.after))
    parts = {
        what: {"before": before.of(functions)[0], "after": after.of(functions)[0]}
        for what, functions in PARTS.items()
    }
    counts = {
        what: {"before": before.of(functions)[1], "after": after.of(functions)[1]}
        for what, functions in COUNTS.items()
    }
    name = pathlib.Path(graph).name.removesuffix(".bwd.pb").removesuffix(".pb")
    return {"graph": name, "before": before.total, "after": after.total, **counts, "parts": parts}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="+", metavar="GRAPH")
    parser.add_argument("--before", required=True, help="bench-plan of a build")
    parser.add_argument("--after", required=True, help="that of the build to compare with it")
    parser.add_argument("--commits", required=True, metavar="OLD,NEW")
    parser.add_argument("--spec", default="h200")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    old, new = options.commits.split(",")
    result = {
        "what": "User instructions of PlanFusion on one thread, without decisions",
        "command": "bench/planning_instructions.py",
        "spec": options.spec,
        "before": old,
        "after": new,
        "rows": [],
    }
    for graph in options.graphs:
        result["rows"].append(row(graph, options))
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        last = result["rows"][-1]
        print(f"{last['graph']}: {last['before'] / 1e6:.0f} -> {last['after'] / 1e6:.0f} million")


if __name__ == "__main__":
    main()
