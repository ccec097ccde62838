#!/usr/bin/env python3
"""Runs the long checks for some hours and goes on where the last run stopped.

    scripts/soak.py --hours 1              all checks, in turns of a minute
    scripts/soak.py --hours 8 --only kills
    scripts/soak.py --report               the figures so far
    scripts/soak.py --hours 0.2 --only gpu on a machine with an NVIDIA GPU

The state is build/soak/state.json. Each check has a target; one that has reached it takes no more
turns. The exit status is 1 if anything failed, in this run or an earlier one: a failure stays in the
state, with what repeats it, until the file is deleted.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TURN = 60            # seconds of a check before the next one takes its turn
MOST_FAILURES = 20   # kept of each check
WORKERS = 64         # processes beside one cache
DIGEST_GRAPHS = ("golf_tiny", "bert_tiny", "gpt2_tiny", "llama_tiny")


class Tools:
    """Where the programs are: a build, or a bundle on another machine."""

    def __init__(self, build, prefix):
        self.bin, self.tests = build / "bin", build / "tests"
        self.fuzz = ROOT / "build/fuzz/bin/graph_fuzzer"
        self.prefix = prefix  # a bundle's `run`

    def test(self, name):
        return self.prefix + (["tests/" + name] if self.prefix else [str(self.tests / name)])

    def retrograd(self):
        return self.prefix + (["retrograd"] if self.prefix else [str(self.bin / "retrograd")])


def output_of(command, timeout, **options):
    """(exit status, standard output, standard error); the status is None after the time limit."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=timeout, **options)
        return done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        return None, "", f"{command[0]} did not end in {timeout:.0f} s"


def ended(status):
    """How a process ended, in words; a status as output_of gives it."""
    if status is None:
        return "out of time"
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def add_counts(to, more):
    for name, count in more.items():
        to[name] = to.get(name, 0) + count


class Graphs:
    """Random graphs in random ways of planning on a device against the reference evaluator."""
    unit, target = "graphs", 100_000
    title = "random graphs through plan, host kernels and reference"

    def __init__(self, tools, jobs, device="host"):
        self.tools, self.jobs, self.device = tools, jobs, device

    def turn(self, state, seconds):
        first = state.setdefault("next", 1)
        command = self.tools.test("soak_graphs") + [
            "--device", self.device, "--seconds", str(seconds), "--stride", str(self.jobs)]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            runs = list(pool.map(
                lambda job: output_of(command + ["--first", str(first + job)], seconds + 600),
                range(self.jobs)))
        failures, reached = [], first
        for job, (status, out, err) in enumerate(runs):
            lines = [line for line in out.splitlines() if line.startswith("{")]
            if status not in (0, 1) or not lines:
                failures.append(f"from seed {first + job} in steps of {self.jobs}, "
                                f"{ended(status)}: {(err or out).strip()[-600:]}")
                continue
            told = json.loads(lines[-1])
            state["done"] = state.get("done", 0) + told["graphs"]
            state["kernels"] = state.get("kernels", 0) + told["kernels"]
            add_counts(state.setdefault("templates", {}), told["templates"])
            failures += told["failures"]
            reached = max(reached, told["next"])
        state["next"] = reached + self.jobs
        return failures

    @staticmethod
    def details(state):
        templates = ", ".join(f"{n} {c:,}" for n, c in sorted(state.get("templates", {}).items()))
        return f"{state.get('kernels', 0):,} kernels: {templates}"


class GpuGraphs(Graphs):
    """The same on an NVIDIA GPU, and a sample of it under compute-sanitizer."""
    title = "random graphs on an NVIDIA GPU"

    def __init__(self, tools, jobs):
        super().__init__(tools, jobs, "cuda")

    def turn(self, state, seconds):
        failures = super().turn(state, seconds)
        return failures + self.sanitize(state, seconds / 6)

    def sanitize(self, state, seconds):
        sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(sanitizer):
            state["sanitizer"] = "no compute-sanitizer on this machine"
            return []
        first = state.setdefault("sanitized_next", 500_000_000)
        failures = []
        for tool in ("memcheck", "racecheck", "synccheck"):
            command = [sanitizer, "--tool", tool, "--error-exitcode", "99",
                       "--target-processes", "all"]
            command += self.tools.test("soak_graphs") + [
                "--device", "cuda", "--first", str(first), "--seconds", str(seconds / 3)]
            status, out, err = output_of(command, seconds + 300)
            lines = [line for line in out.splitlines() if line.startswith("{")]
            if status != 0 or not lines:
                failures.append(f"{tool} from seed {first}, {ended(status)}: "
                                f"{(out + err).strip()[-600:]}")
                continue
            told = json.loads(lines[-1])
            add_counts(state.setdefault("sanitized", {}), {tool: told["graphs"]})
            first = told["next"]
        state["sanitized_next"] = first
        return failures

    @staticmethod
    def details(state):
        sanitized = ", ".join(f"{n} {c:,}" for n, c in sorted(state.get("sanitized", {}).items()))
        sanitized = sanitized or state.get("sanitizer", "none")
        return f"{Graphs.details(state)}; under compute-sanitizer: {sanitized}"


class Fuzz:
    """Loading, planning and printing of mutated files, by libFuzzer."""
    unit, target = "executions", 100_000_000
    title = "fuzzed graph files"

    def __init__(self, tools, jobs):
        self.tools, self.jobs = tools, jobs

    def turn(self, state, seconds):
        corpus = ROOT / "build/soak/corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        findings = ROOT / "build/soak"
        command = [str(self.tools.fuzz), "-entropic=0", f"-max_total_time={seconds}",
                   "-max_len=2048", "-timeout=60", "-rss_limit_mb=4096", "-print_final_stats=1",
                   f"-artifact_prefix={findings}/", "-verbosity=0", str(corpus),
                   str(ROOT / "tests/fuzz/corpus")]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            runs = list(pool.map(lambda _: output_of(command, seconds + 600), range(self.jobs)))
        failures = []
        for status, out, err in runs:
            found = re.search(r"number_of_executed_units:\s*(\d+)", out + err)
            state["done"] = state.get("done", 0) + (int(found.group(1)) if found else 0)
            if status != 0:
                failures.append(f"graph_fuzzer: {err.strip()[-600:]}")
        return failures

    @staticmethod
    def details(state):
        return ""


class Digests:
    """The same plans, byte for byte, in every process."""
    unit, target = "processes", 1_000
    title = "processes that plan the same graphs"

    def __init__(self, tools, jobs):
        self.tools, self.jobs = tools, jobs
        self.graphs = [str(ROOT / "models/graphs" / f"{name}.bwd.pb")
                       for name in DIGEST_GRAPHS]

    def plans(self, _):
        status, out, err = output_of(
            [str(self.tools.tests / "plan_digest"), "h200"] + self.graphs, 600)
        return [l for l in out.splitlines() if l.startswith("plan")] if status == 0 else [err]

    def turn(self, state, seconds):
        end, failures = time.monotonic() + seconds, []
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            while time.monotonic() < end and state.get("done", 0) < self.target:
                for plans in pool.map(self.plans, range(self.jobs)):
                    if plans != state.setdefault("plans", plans):
                        failures.append(f"plans differ: {plans} instead of {state['plans']}")
                    state["done"] = state.get("done", 0) + 1
        return failures

    @staticmethod
    def details(state):
        return f"{len(DIGEST_GRAPHS)} graphs each"


class Kills:
    """Processes that compile into one cache and are killed at any moment: what they leave behind
    never gives another process other gradients, and never stops one."""
    unit, target = "kills", 10_000
    title = f"kills of processes, {WORKERS} at a time, beside one cache of kernels"

    def __init__(self, tools, jobs):
        self.tools, self.jobs = tools, jobs
        self.random = random.Random()

    def command(self, out):
        return self.tools.retrograd() + ["run", "mlp:layers=1", "--device", "host", "--spec", "h200",
                                         "--random-inputs", "7", "--save", str(out)]

    def gradients(self, folder, timeout):
        """The digest of a whole run's gradients, or what it says."""
        out = folder / "gradients.safetensors"
        status, _, err = output_of(self.command(out), timeout, env=self.environment(folder))
        if status != 0:
            return f"exit status {status}: {err.strip()[-400:]}"
        return hashlib.sha256(out.read_bytes()).hexdigest()

    @staticmethod
    def environment(folder):
        return os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}

    def turn(self, state, seconds):
        end, failures = time.monotonic() + seconds, []
        while time.monotonic() < end and state.get("done", 0) < self.target and not failures:
            with tempfile.TemporaryDirectory(prefix="retrograd_soak_") as name:
                folder = Path(name)
                (folder / "tmp").mkdir()
                self.kill_some(state, folder)
                told = self.gradients(folder, 300)
                state.setdefault("gradients", told)
                if told != state["gradients"]:
                    failures.append(f"after kills: {told} instead of {state['gradients']}")
                left = [p.name for p in (folder / "tmp").iterdir()]
                left += [str(p) for p in (folder / "cache").rglob("work-*")]
                if left:
                    failures.append(f"work folders stay after the next run: {left[:5]}")
                state["caches"] = state.get("caches", 0) + 1
        return failures

    def kill_some(self, state, folder):
        """So many processes at once, each killed at a moment of its own; those that end before count
        as no kill."""
        running = []
        for worker in range(WORKERS):
            running.append(subprocess.Popen(self.command(folder / f"{worker}.safetensors"),
                                            env=self.environment(folder), start_new_session=True,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        order = self.random.sample(running, len(running))
        for process in order:
            time.sleep(self.random.uniform(0, 0.15))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                state["done"] = state.get("done", 0) + 1
            process.wait()

    @staticmethod
    def details(state):
        return f"{state.get('caches', 0):,} caches, each read by a whole run afterwards"


CHECKS = {"graphs": Graphs, "fuzz": Fuzz, "digests": Digests, "kills": Kills, "gpu": GpuGraphs}
ON_CPU = ("graphs", "fuzz", "digests", "kills")


class Ledger:
    """The figures of all runs so far."""

    def __init__(self, path):
        self.path = path
        self.checks = json.loads(path.read_text()) if path.exists() else {}

    def of(self, name):
        return self.checks.setdefault(name, {"done": 0, "seconds": 0, "failures": []})

    def note(self, name, seconds, failures):
        state = self.of(name)
        state["seconds"] = round(state["seconds"] + seconds, 1)
        state["failures"] = (state["failures"] + failures)[:MOST_FAILURES]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(self.checks, indent=1) + "\n")
        temporary.replace(self.path)

    def failed(self):
        return any(state["failures"] for state in self.checks.values())

    def table(self):
        lines = ["| Check | Done | Target | Minutes | Failures | |", "|---|--:|--:|--:|--:|---|"]
        for name, check in CHECKS.items():
            if name not in self.checks:
                continue
            state = self.checks[name]
            lines.append(f"| {check.title} | {state['done']:,} {check.unit} | {check.target:,} | "
                         f"{state['seconds'] / 60:.0f} | {len(state['failures'])} | "
                         f"{check.details(state)} |")
        return "\n".join(lines)


def soak(checks, ledger, seconds):
    end = time.monotonic() + seconds
    while checks and time.monotonic() < end:
        for name in list(checks):
            state = ledger.of(name)
            if state["done"] >= CHECKS[name].target:
                del checks[name]
                continue
            left = end - time.monotonic()
            if left <= 0:
                break
            began = time.monotonic()
            failures = checks[name].turn(state, int(max(1, min(TURN, left))))
            ledger.note(name, time.monotonic() - began, failures)
            for failure in failures:
                print(f"{name}: {failure}", file=sys.stderr, flush=True)
            print(f"{name}: {state['done']:,} {CHECKS[name].unit}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--only", action="append", choices=list(CHECKS), default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--bundle", type=Path, help="a folder that make gpu-bundle packed")
    parser.add_argument("--state", type=Path, default=ROOT / "build/soak/state.json")
    parser.add_argument("--report", action="store_true", help="print the figures and do nothing")
    arguments = parser.parse_args()
    ledger = Ledger(arguments.state)
    if not arguments.report:
        prefix = [str(arguments.bundle / "run")] if arguments.bundle else []
        tools = Tools(arguments.build, prefix)
        checks = {name: CHECKS[name](tools, arguments.jobs) for name in arguments.only or ON_CPU}
        soak(checks, ledger, arguments.hours * 3600)
    print(ledger.table())
    sys.exit(1 if ledger.failed() else 0)


if __name__ == "__main__":
    main()
