#!/usr/bin/env python3
"""Plants bugs one at a time in a copy of the tree, and says which of them the tests catch.

    scripts/mutants.py                      every bug of tests/mutants/*.toml that has no result yet
    scripts/mutants.py --only fusion        a folder, or one bug by its id; may be repeated
    scripts/mutants.py --list               the bugs and their last results, running nothing

A mutant replaces one text of one file. It is *killed* if one of its nearest tests fails or runs past
its time, *survived* if all pass, and *invalid* if the tree does not build with it. A survivor whose row
says in `argued` why no test can see it is *argued*; it counts as not killed. The copy lies in
build/mutants/tree and is built as build/release there; tests/mutants/results.json keeps every result
under a hash of the mutant, its file and its tests, so a stopped run goes on where it stopped.

Ends with 0 if every mutant asked for is killed or argued, 1 if one survived, is invalid or is killed
against its argument, 2 on bad input.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
LISTS = "tests/mutants"
BUILD = "build/release"
# A test may take so many times what it takes on the tree as it is, and at least so many seconds: of
# the processor, so that the verdict does not depend on what else the machine does.
SLOWER = 4
LEAST_SECONDS = 60
LONGEST_SECONDS = 1800  # of a test on the tree as it is
IDLE_SECONDS = 120  # by the clock: who takes no processor for so long waits for ever
KILLED, SURVIVED, INVALID, ARGUED = "killed", "survived", "invalid", "argued"
# What ignored paths the build finds things in: linked into the copy where they exist.
LINKED = [".venv", ".cache"]
# What Python tests start, where this tree has it.
PYTHON_TARGETS = ["retrograd", "fusion-explain", "reference_outputs", "retrograd_shared"]


class BadInput(Exception):
    """The list of mutants, or the command line, asks for what cannot be done."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    id: str
    folder: str  # the list's name
    file: str
    find: str  # stands once in the file
    replace: str
    why: str  # what bug this is
    tests: tuple  # nearest first: ctest names, or paths of Python tests
    argued: str = ""  # why no test can see it, if none can

    def apply(self, text):
        """The file's text with the bug. BadInput unless `find` stands in it exactly once."""
        count = text.count(self.find)
        if count != 1:
            raise BadInput(f"mutant {self.id}: its text stands {count} times in {self.file}, not once")
        return text.replace(self.find, self.replace)


def is_python(test):
    """Whether a test's name is a Python test's path, maybe with ::NAME behind it."""
    return test.split("::")[0].endswith(".py")


def read_list(path):
    """The mutants of one list, named after its folder."""
    try:
        rows = tomllib.loads(path.read_text()).get("mutant", [])
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: {error}") from error
    wanted = {field.name for field in dataclasses.fields(Mutant)} - {"folder", "argued"}
    mutants = []
    for row in rows:
        if set(row) - {"argued"} != wanted or not row["tests"] or not row.get("argued", "-").strip():
            raise BadInput(f"{path}: mutant {row.get('id', '?')} must have {', '.join(sorted(wanted))}, "
                           "and may have argued, none of them empty")  # fmt: skip
        mutants.append(Mutant(folder=path.stem, **{**row, "tests": tuple(row["tests"])}))
    return mutants


def read_mutants(root):
    """Every mutant of a tree, in the order of lists. BadInput for a file that is not there, a text
    that does not stand once, a replacement that changes nothing, or an id that is taken."""
    mutants = [m for path in sorted((root / LISTS).glob("*.toml")) for m in read_list(path)]
    taken = set()
    for mutant in mutants:
        if mutant.id in taken:
            raise BadInput(f"two mutants are called {mutant.id}")
        taken.add(mutant.id)
        if not (root / mutant.file).is_file():
            raise BadInput(f"mutant {mutant.id}: there is no {mutant.file}")
        if mutant.find == mutant.replace:
            raise BadInput(f"mutant {mutant.id} changes nothing")
        mutant.apply((root / mutant.file).read_text())
    return mutants


def choose(mutants, only):
    """Those of the folders and ids that are asked for; all if none is."""
    known = {m.folder for m in mutants} | {m.id for m in mutants}
    for name in only:
        if name not in known:
            folders = ", ".join(sorted({m.folder for m in mutants}))
            raise BadInput(f"no folder or mutant '{name}'; the folders are {folders}")
    return [m for m in mutants if not only or m.folder in only or m.id in only]


def test_sources(root, test):
    """The files whose text makes a test: its own, and for golden_test every golden file."""
    if is_python(test):
        return [root / test.split("::")[0]]
    sources = sorted((root / "tests").rglob(f"{test}.cc"))
    if test == "golden_test":
        sources += sorted((root / "tests/golden").rglob("*.rgt"))
    return sources


def key_of(root, mutant, everything):
    """Changes with the mutant, its file, its tests, and whether all other tests run after them."""
    digest = hashlib.sha256()
    for part in (mutant.file, mutant.find, mutant.replace, *mutant.tests, str(everything)):
        digest.update(part.encode() + b"\0")
    for path in [root / mutant.file] + [p for t in mutant.tests for p in test_sources(root, t)]:
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


class State:
    """The results so far, written after each of them: a file of the repository, since they hold on
    every machine. How long tests take is this machine's own and lies in build/."""

    def __init__(self, root):
        self.path = root / LISTS / "results.json"
        self.times_path = root / "build/mutants/times.json"
        self.results, self.times = read_json(self.path), read_json(self.times_path)

    def save(self):
        by_id = sorted(self.results.items(), key=lambda item: (item[1]["id"], item[0]))
        write_json(self.path, dict(by_id))
        write_json(self.times_path, self.times)


def read_json(path):
    return json.loads(path.read_text()) if path.exists() else {}


def write_json(path, value):
    """The whole file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(value, indent=1) + "\n")
    aside.replace(path)


class Tree:
    """The copy that is built and broken."""

    def __init__(self, root, path, jobs):
        self.root, self.path, self.jobs = root, path, jobs
        self.commands = {}  # of ctest, by name
        self._hash = ""

    def copy(self):
        """Brings the copy to the state of the tree, uncommitted changes included. Files that are
        equal keep their times, so that the build redoes nothing for them."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"],
            cwd=self.root, check=True, capture_output=True, text=True,
        ).stdout.split("\0")  # fmt: skip
        files = {name for name in listed if name and (self.root / name).is_file()}
        files = {name for name in files if name not in LINKED}
        self.path.mkdir(parents=True, exist_ok=True)
        for name in sorted(self._copied() - files):
            (self.path / name).unlink()
        for name in sorted(files):
            self._copy_file(name)
        for name in LINKED:
            if (self.root / name).exists() and not (self.path / name).exists():
                (self.path / name).symlink_to((self.root / name).resolve())

    def _copied(self):
        names = set()
        for folder, below, files in os.walk(self.path):
            at = pathlib.Path(folder).relative_to(self.path)
            below[:] = [d for d in below if str(at / d) != "build" and d != "__pycache__"]
            below[:] = [d for d in below if not (self.path / at / d).is_symlink()]
            names.update(str(at / f) for f in files if not (self.path / at / f).is_symlink())
        return names

    def _copy_file(self, name):
        source, target = self.root / name, self.path / name
        if target.exists() and target.read_bytes() == source.read_bytes():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)

    def hash(self):
        """Of every file that a test may see: what its time without a bug belongs to."""
        if not self._hash:
            digest = hashlib.sha256()
            for name in sorted(self._copied()):
                if not name.endswith(".md") and not name.startswith(f"{LISTS}/"):
                    digest.update(name.encode() + b"\0" + (self.path / name).read_bytes())
            self._hash = digest.hexdigest()[:24]
        return self._hash

    def configure(self):
        """Makes build.ninja, and learns the names of the tests."""
        run_or_fail(["cmake", "--preset", "release"], self.path)
        self.learn_commands()

    def learn_commands(self):
        """Asks ctest for its tests; of those that are not built yet it knows no command."""
        found = subprocess.run(
            ["ctest", "--test-dir", BUILD, "--show-only=json-v1"],
            cwd=self.path, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        for test in json.loads(found)["tests"]:
            self.commands[test["name"]] = test

    def targets(self):
        """The names that can be built."""
        listed = subprocess.run(
            ["ninja", "-C", BUILD, "-t", "targets", "all"],
            cwd=self.path, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        return {line.split(":")[0] for line in listed.splitlines()}

    def build(self, tests):
        """Builds what the tests need; the output if that fails, else None."""
        wanted = {t for t in tests if not is_python(t)}
        if any(is_python(t) for t in tests):
            wanted |= self.targets() & set(PYTHON_TARGETS)
        if not wanted:
            return None
        command = ["cmake", "--build", BUILD, "--parallel", str(self.jobs), "--target"]
        built = subprocess.run(
            command + sorted(wanted), cwd=self.path, check=False, capture_output=True, text=True
        )
        return None if built.returncode == 0 else built.stdout + built.stderr

    def command(self, test):
        """How a test that is built is started: arguments, folder, environment."""
        env = dict(os.environ)
        if is_python(test):
            python = self.path / ".venv/bin/python"
            start = [str(python) if python.exists() else sys.executable, "-m", "pytest", "-q", "-x"]
            env |= {"PYTHONPATH": "python", "RETROGRAD_BIN_DIR": f"{BUILD}/bin",
                    "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
            return start + ["-p", "no:cacheprovider", test], self.path, env
        if "command" not in self.commands[test]:
            self.learn_commands()
        known = self.commands[test]
        folder = self.path
        for row in known["properties"]:
            if row["name"] == "WORKING_DIRECTORY":
                folder = row["value"]
            if row["name"] == "ENVIRONMENT":
                env |= dict(pair.split("=", 1) for pair in row["value"])
        return known["command"] + ["--abort"], folder, env  # of Catch2: ends at the first failure

    def run(self, test, seconds):
        """Runs a test for at most so many seconds of the processor: how it ended ("passed", "failed",
        "ran too long"), its output's end, and the seconds that it took."""
        arguments, folder, env = self.command(test)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(
                arguments, cwd=folder, env=env, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                ended = wait_for(child, seconds)
            finally:
                stop_group(child)
            output.seek(max(0, output.seek(0, os.SEEK_END) - 2000))
            said = output.read()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return ended, said, took


def processor_seconds(session):
    """What the processes of a session have taken so far, and those that they have waited for."""
    ticks = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # gone
            continue
        if int(fields[3]) == session:
            ticks += sum(int(number) for number in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_for(child, seconds):
    """Waits until a child ends, has taken so many seconds of the processor, or takes none."""
    taken, since = 0.0, time.monotonic()
    while True:
        try:
            return "passed" if child.wait(timeout=1) == 0 else "failed"
        except subprocess.TimeoutExpired:
            now = processor_seconds(child.pid)
        if now > seconds:
            return "ran too long"
        if now > taken:
            taken, since = now, time.monotonic()
        elif time.monotonic() - since > IDLE_SECONDS:
            return "ran too long"


def stop_group(child):
    """Ends a child and what it has started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def run_or_fail(command, folder):
    """Runs a command that must succeed; BadInput with its output otherwise."""
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise BadInput(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def tests_of(mutant, tree, everything):
    """The tests of a mutant in their order."""
    rest = [t for t in sorted(tree.commands) if t not in mutant.tests] if everything else []
    return [*mutant.tests, *rest]


def time_test(tree, test, state):
    """Measures a test on the tree as it is, once. BadInput if it fails."""
    if state.times.get(test, {}).get("tree") == tree.hash():
        return
    failure = tree.build([test])
    if failure:
        raise BadInput(f"the tree does not build as it is:\n{failure[-4000:]}")
    ended, output, took = tree.run(test, LONGEST_SECONDS)
    if ended != "passed":
        raise BadInput(f"{test} {ended} without any bug:\n{output.decode(errors='replace')}")
    state.times[test] = {"tree": tree.hash(), "seconds": round(took, 2)}
    state.save()


def try_test(tree, mutant, test, seconds):
    """Plants the bug, builds and runs one test, and takes the bug away again: the verdict if that
    decides, else None."""
    path = tree.path / mutant.file
    text = path.read_text()
    try:
        path.write_text(mutant.apply(text))
        failure = tree.build([test])
        if failure:
            # Without the paths of the machine that it ran on.
            how = failure.replace(f"{tree.path}/", "")[-600:]
            return {"verdict": INVALID, "by": test, "how": how}
        ended, _, _ = tree.run(test, seconds)
        return None if ended == "passed" else {"verdict": KILLED, "by": test, "how": ended}
    finally:
        path.write_text(text)


def try_mutant(tree, mutant, everything, state):
    """Runs the tests one after the other until one decides.

    Returns {verdict, by, how}: `by` is the test that killed it, `how` the way that ended.
    """
    for test in tests_of(mutant, tree, everything):
        time_test(tree, test, state)
        seconds = max(LEAST_SECONDS, SLOWER * state.times[test]["seconds"])
        result = try_test(tree, mutant, test, seconds)
        if result:
            return result
    return {"verdict": SURVIVED, "by": "", "how": ""}


def in_turns(mutants):
    """The first of each folder, then the second of each: a stopped run has been everywhere."""
    places = {}
    for mutant in mutants:
        places[mutant.id] = sum(m.folder == mutant.folder for m in mutants[: len(places)])
    return sorted(mutants, key=lambda m: places[m.id])


def run_mutants(tree, mutants, state, everything):
    """Tries every mutant that has no result, and records it."""
    pending = [m for m in mutants if key_of(tree.root, m, everything) not in state.results]
    if not pending:
        return
    pending = in_turns(pending)
    tree.copy()
    tree.configure()
    tests = {t for m in pending for t in m.tests}
    for test in sorted(tests):
        if not is_python(test) and test not in tree.commands:
            raise BadInput(f"ctest knows no '{test}'")
    failure = tree.build(tests)
    if failure:
        raise BadInput(f"the tree does not build as it is:\n{failure[-4000:]}")
    tree.learn_commands()
    for number, mutant in enumerate(pending, 1):
        begin = time.monotonic()
        result = try_mutant(tree, mutant, everything, state)
        result |= {"id": mutant.id, "seconds": round(time.monotonic() - begin, 1)}
        state.results[key_of(tree.root, mutant, everything)] = result
        state.save()
        by = f" by {result['by']}, which {result['how']}" if result["verdict"] == KILLED else ""
        print(f"[{number}/{len(pending)}] {mutant.id}: {result['verdict']}{by}, "
              f"{result['seconds']:.0f} s", flush=True)  # fmt: skip


def table(mutants, verdicts):
    """The score by folder, as rows of Markdown. verdicts: by id, None where not run."""
    lines = ["| folder | mutants | killed | survived | argued | invalid | not run | score |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    folders = sorted({m.folder for m in mutants})
    for folder in [*folders, "all"]:
        of = [verdicts[m.id] for m in mutants if folder in (m.folder, "all")]
        killed, survived, argued = of.count(KILLED), of.count(SURVIVED), of.count(ARGUED)
        judged = killed + survived + argued
        score = f"{100 * killed / judged:.0f}%" if judged else "-"
        lines.append(f"| {folder} | {len(of)} | {killed} | {survived} | {argued} | "
                     f"{of.count(INVALID)} | {of.count(None)} | {score} |")  # fmt: skip
    return "\n".join(lines)


def verdicts_of(root, mutants, state, everything):
    """What is known of each mutant as it is: by id, None where it has not run."""
    verdicts = {}
    for mutant in mutants:
        result = state.results.get(key_of(root, mutant, everything))
        verdict = result and result["verdict"]
        verdicts[mutant.id] = ARGUED if verdict == SURVIVED and mutant.argued else verdict
    return verdicts


def report(mutants, verdicts):
    """Prints the table, and each mutant that is not killed."""
    print(table(mutants, verdicts))
    for mutant in mutants:
        verdict = verdicts[mutant.id]
        if verdict in (SURVIVED, INVALID):
            print(f"{verdict}: {mutant.id} ({mutant.file}): {mutant.why}")
        if verdict == ARGUED:
            print(f"{verdict}: {mutant.id} ({mutant.file}): {mutant.why}; {mutant.argued}")
        if refuted(mutant, verdict):
            print(f"killed against its argument: {mutant.id} ({mutant.file}): {mutant.argued}")


def refuted(mutant, verdict):
    """Whether a test sees what the list says that none can."""
    return verdict == KILLED and bool(mutant.argued)


def parse(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], metavar="FOLDER|ID")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at once")
    parser.add_argument("--all", action="store_true", help="after the nearest tests, every other")
    parser.add_argument("--again", action="store_true", help="run those that have a result, too")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the tree")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error("--jobs: at least 1")
    return options


def main(arguments=None):
    """Runs the command line; returns the exit status."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through what puts the copy in order
    root = options.root.resolve()
    try:
        mutants = choose(read_mutants(root), options.only)
        state = State(root)
        if options.again:
            for mutant in mutants:
                state.results.pop(key_of(root, mutant, options.all), None)
        if options.list:
            for m in mutants:
                verdict = verdicts_of(root, [m], state, options.all)[m.id] or "not run"
                print(f"{m.id:42} {verdict:9} {m.file}: {m.why}")
            return 0
        tree = Tree(root, root / "build/mutants/tree", options.jobs)
        run_mutants(tree, mutants, state, options.all)
    except BadInput as error:
        print(f"mutants.py: {error}", file=sys.stderr)
        return 2
    verdicts = verdicts_of(root, mutants, state, options.all)
    report(mutants, verdicts)
    good = all(verdicts[m.id] in (KILLED, ARGUED) and not refuted(m, verdicts[m.id]) for m in mutants)
    return 0 if good else 1


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # --list | head
    sys.exit(main())
