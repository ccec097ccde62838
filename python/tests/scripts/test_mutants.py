"""scripts/mutants.py: the list of planted bugs fits the tree, and the script tells killed, survived
and invalid ones apart, once each."""

import json
import shutil
import subprocess
import sys

import conftest
import mutants
import pytest

FOLDERS = {"graph", "fusion", "codegen", "runtime", "tools", "models", "python"}


@pytest.fixture(scope="module")
def listed():
    return mutants.read_mutants(conftest.ROOT)


def test_every_mutant_applies_to_the_present_tree(listed):
    for mutant in listed:
        text = (conftest.ROOT / mutant.file).read_text()
        assert text.count(mutant.find) == 1, mutant.id
        assert mutant.apply(text) != text, mutant.id


def test_there_are_sixty_mutants_or_more_with_ids_of_their_own_in_every_folder(listed):
    assert len(listed) >= 60
    assert len({m.id for m in listed}) == len(listed)
    assert {m.folder for m in listed} == FOLDERS
    for mutant in listed:
        assert mutant.file.split("/")[0] == mutant.folder, mutant.id
        assert mutant.why, mutant.id


def test_each_named_test_exists(listed):
    for mutant in listed:
        for test in mutant.tests:
            sources = mutants.test_sources(conftest.ROOT, test)
            assert sources and all(path.is_file() for path in sources), (mutant.id, test)
            assert mutants.is_python(test) or len(set(sources)) == len(sources)


# --- a tree of three functions ---------------------------------------------------------------------
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(toy LANGUAGES CXX)
enable_testing()
foreach(test near_test far_test)
  add_executable(${test} tests/${test}.cc)
  target_include_directories(${test} PRIVATE ${PROJECT_SOURCE_DIR})
  add_test(NAME ${test} COMMAND ${test} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${test} PROPERTIES ENVIRONMENT "TOY=1;TOY_TOO=a=b")
endforeach()
"""
PRESETS = {
    "version": 6,
    "configurePresets": [
        {"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}
    ],
}
HEADER = "inline int Add(int a, int b) { return a + b; }\ninline int Twice(int a) { return 2 * a; }\n"
# Writes a line a run, so that the number of runs can be told.
NEAR = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include "code/numbers.h"
int main() {
  std::FILE* runs = std::fopen("build/runs", "a");
  std::fputs("near\\n", runs);
  std::fclose(runs);
  if (std::strcmp(std::getenv("TOY_TOO"), "a=b") != 0) return 2;
  for (int i = 0; Add(i, 0) < 3; ++i) {}
  return Add(1, 2) == 3 ? 0 : 1;
}
"""
FAR = '#include "code/numbers.h"\nint main() { return Twice(2) == 4 ? 0 : 1; }\n'
LIST = r"""
[[mutant]]
id = "add-subtracts"
file = "code/numbers.h"
find = "a + b"
replace = "a + 2 * b"
why = "wrong sums"
tests = ["near_test"]

[[mutant]]
id = "twice-is-thrice"
file = "code/numbers.h"
find = "2 * a"
replace = "3 * a"
why = "the nearest test does not look"
tests = ["near_test"]

[[mutant]]
id = "no-semicolon"
file = "code/numbers.h"
find = "return a + b;"
replace = "return a + b"
why = "does not compile"
tests = ["near_test"]
"""
PYTHON_LIST = """
[[mutant]]
id = "python-adds"
file = "code/numbers.py"
find = "a + b"
replace = "a - b"
why = "wrong sums"
tests = ["tests/test_toy.py::test_add"]
"""


TOY_TEST = """
import pathlib


def test_add():
    names = {}
    exec((pathlib.Path(__file__).parents[1] / "code/numbers.py").read_text(), names)
    assert names["add"](1, 2) == 3
"""


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def toy(tmp_path):
    if not shutil.which("cmake") or not shutil.which("ninja") or not shutil.which("git"):
        pytest.skip("needs cmake, ninja and git")
    write(
        tmp_path,
        {
            "CMakeLists.txt": CMAKE,
            "CMakePresets.json": json.dumps(PRESETS),
            "code/numbers.h": HEADER,
            "code/numbers.py": "def add(a, b):\n    return a + b\n",
            "tests/near_test.cc": NEAR,
            "tests/far_test.cc": FAR,
            "tests/test_toy.py": TOY_TEST,
            "tests/mutants/code.toml": LIST,
            "tests/mutants/python.toml": PYTHON_LIST,
            ".gitignore": "/build/\n",
        },
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def run(root, *options):
    return subprocess.run(
        [sys.executable, conftest.ROOT / "scripts/mutants.py", "--root", root, *options],
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def verdicts(root):
    results = json.loads((root / "tests/mutants/results.json").read_text())
    return {result["id"]: result["verdict"] for result in results.values()}


def runs(root):
    return (root / "build/mutants/tree/build/runs").read_text().count("near")


def test_killed_survived_and_invalid_are_told_apart_and_results_are_kept(toy):
    first = run(toy, "--only", "add-subtracts")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "add-subtracts: killed by near_test" in first.stdout
    assert runs(toy) == 2  # as it is, and with the bug

    rest = run(toy)  # goes on with those that have no result
    assert rest.returncode == 1, rest.stdout + rest.stderr
    assert "add-subtracts: killed" not in rest.stdout
    assert verdicts(toy) == {
        "add-subtracts": "killed",
        "twice-is-thrice": "survived",
        "no-semicolon": "invalid",
        "python-adds": "killed",
    }
    assert "| code | 3 | 1 | 1 | 0 | 1 | 0 | 50% |" in rest.stdout
    assert "| python | 1 | 1 | 0 | 0 | 0 | 0 | 100% |" in rest.stdout
    assert "| all | 4 | 2 | 1 | 0 | 1 | 0 | 67% |" in rest.stdout
    assert "survived: twice-is-thrice (code/numbers.h): the nearest test does not look" in rest.stdout
    before = runs(toy)
    assert run(toy).returncode == 1
    assert runs(toy) == before
    assert (toy / "code/numbers.h").read_text() == HEADER
    assert (toy / "build/mutants/tree/code/numbers.h").read_text() == HEADER

    everything = run(toy, "--all", "--only", "twice-is-thrice")
    assert everything.returncode == 0, everything.stdout + everything.stderr
    assert "twice-is-thrice: killed by far_test" in everything.stdout


def test_a_changed_file_or_test_is_tried_again(toy):
    assert run(toy, "--only", "add-subtracts").returncode == 0
    before = runs(toy)
    (toy / "tests/near_test.cc").write_text(NEAR + "// looks at the sum of 1 and 2\n")
    assert run(toy, "--only", "add-subtracts").returncode == 0
    assert runs(toy) == before + 2


def argue(toy, why):
    """Gives the row with this `why` an argument."""
    path = toy / "tests/mutants/code.toml"
    row = f'why = "{why}"\n'
    text = path.read_text()
    assert text.count(row) == 1
    path.write_text(text.replace(row, row + 'argued = "nobody calls it"\n'))


def test_an_argued_survivor_is_told_apart_and_counts_as_not_killed(toy):
    assert run(toy, "--only", "twice-is-thrice").returncode == 1
    before = runs(toy)
    argue(toy, "the nearest test does not look")
    argued = run(toy, "--only", "twice-is-thrice")
    assert argued.returncode == 0, argued.stdout + argued.stderr
    assert runs(toy) == before  # the argument changes no result
    assert "| code | 1 | 0 | 0 | 1 | 0 | 0 | 0% |" in argued.stdout
    assert "argued: twice-is-thrice (code/numbers.h): the nearest test does not look; nobody calls it" in (
        argued.stdout
    )
    assert "argued" in run(toy, "--list").stdout


def test_an_argument_that_a_test_refutes_is_said(toy):
    argue(toy, "wrong sums")
    refuted = run(toy, "--only", "add-subtracts")
    assert refuted.returncode == 1, refuted.stdout + refuted.stderr
    assert "| code | 1 | 1 | 0 | 0 | 0 | 0 | 100% |" in refuted.stdout
    assert "killed against its argument: add-subtracts" in refuted.stdout


def test_a_mutant_that_never_ends_is_killed_by_its_time(toy, monkeypatch):
    listed = (toy / "tests/mutants/code.toml").read_text()
    (toy / "tests/mutants/code.toml").write_text(
        listed.replace('replace = "a + 2 * b"', 'replace = "(a > 1 ? 1 : a) + b"')
    )
    monkeypatch.setattr(mutants, "LEAST_SECONDS", 3)
    assert mutants.main(["--root", str(toy), "--only", "add-subtracts"]) == 0
    (result,) = json.loads((toy / "tests/mutants/results.json").read_text()).values()
    assert (result["verdict"], result["how"]) == ("killed", "ran too long")


@pytest.mark.parametrize(
    "change, says",
    [
        (('find = "a + b"', 'find = "a - b"'), "stands 0 times"),
        (('find = "a + b"', 'find = "int a"'), "stands 2 times"),
        (('replace = "a + 2 * b"', 'replace = "a + b"'), "changes nothing"),
        (('id = "no-semicolon"', 'id = "add-subtracts"'), "two mutants are called add-subtracts"),
        (('file = "code/numbers.h"', 'file = "code/none.h"'), "there is no code/none.h"),
        (('why = "wrong sums"', 'because = "wrong sums"'), "must have"),
        (('why = "wrong sums"', "why = "), "code.toml"),
        (('tests = ["near_test"]', "tests = []"), "must have"),
        (('why = "wrong sums"', 'why = "wrong sums"\nargued = ""'), "may have argued"),
        (('tests = ["near_test"]', 'tests = ["none_test"]'), "ctest knows no 'none_test'"),
    ],
)
def test_a_list_that_does_not_fit_the_tree_is_refused(toy, change, says):
    path = toy / "tests/mutants/code.toml"
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(change[0], change[1], 1))
    refused = run(toy)
    assert refused.returncode == 2, refused.stdout
    assert says in refused.stderr
    assert "Traceback" not in refused.stderr


def test_what_is_asked_for_must_exist_and_a_broken_tree_is_no_verdict(toy):
    refused = run(toy, "--only", "cod")
    assert refused.returncode == 2
    assert "no folder or mutant 'cod'; the folders are code, python" in refused.stderr
    (toy / "tests/near_test.cc").write_text("int main() { return 1; }\n")
    refused = run(toy, "--only", "add-subtracts")
    assert refused.returncode == 2
    assert "near_test failed without any bug" in refused.stderr
    (toy / "tests/near_test.cc").write_text("int main() {\n")
    refused = run(toy, "--only", "add-subtracts")
    assert refused.returncode == 2
    assert "does not build as it is" in refused.stderr
    listed = run(toy, "--list")
    assert listed.returncode == 0
    assert listed.stdout.count("not run") == 4


def test_a_mutant_that_waits_for_ever_is_killed_and_what_it_started_ends(toy, monkeypatch):
    monkeypatch.setattr(mutants, "IDLE_SECONDS", 2)
    tree = mutants.Tree(toy, toy, 1)
    tree.commands["waits"] = {
        "command": ["sh", "-c", "sleep 987654 & echo $! > build/child; sleep 987654"],
        "properties": [],
    }
    (toy / "build").mkdir()
    assert tree.run("waits", 60)[0] == "ran too long"
    child = (toy / "build/child").read_text().strip()
    stat = subprocess.run(["ps", "-o", "stat=", "-p", child], check=False, capture_output=True, text=True)
    assert stat.stdout.strip()[:1] in ("", "Z")
