"""bench/choices.py: the files that it makes of a tuned one."""

import json
import subprocess
import sys

import choices
import conftest

TUNED = conftest.ROOT / "bench/results/tuned_nvidia_h100/vit_small_b8.tuned.textproto"


def chosen(text):
    return [choices.field(c, "chosen") for c in choices.split(text)[1]]


def test_a_file_is_what_its_parts_are():
    text = TUNED.read_text()
    assert choices.joined(*choices.split(text)) == text


def test_each_choice_that_is_not_the_default_is_tried_alone():
    text = TUNED.read_text()
    head, parts = choices.split(text)
    defaults = [choices.field(c, "default") for c in parts]
    changed = [i for i, name in enumerate(chosen(text)) if name != defaults[i]]
    assert len(changed) == 6
    made = choices.variants(text)
    assert chosen(made[0][3]) == defaults
    assert made[1][3] == text
    for i, (name, call, margin, variant) in zip(changed, made[2:], strict=True):
        assert call == choices.field(parts[i], "call")
        assert margin > 0
        assert name.endswith(chosen(text)[i])
        assert chosen(variant) == [*defaults[:i], chosen(text)[i], *defaults[i + 1 :]]
        assert variant.startswith(head)


def test_each_backward_is_timed_by_processes_of_its_own(tmp_path):
    program = tmp_path / "retrograd"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib, sys\n"
        "file = sys.argv[sys.argv.index('--tuned') + 1]\n"
        "assert sys.argv[1:3] == ['run', 'graph.bwd.pb']\n"
        "text = pathlib.Path(file).read_text()\n"
        "print('a line in front')\n"
        "slow = text.count('chosen: \"algorithm 66 tile 16 ')\n"
        "print(json.dumps({'measured_us': 1000 + 28 * slow}))\n"
    )
    program.chmod(0o755)
    output = tmp_path / "choices.json"
    command = [
        sys.executable, conftest.ROOT / "bench/choices.py", "graph.bwd.pb", TUNED,
        "--retrograd", program, "--calls", "3", "--output", output,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(output.read_text())["rows"]
    slow = [row["name"] for row in rows if row["us"] == [1028, 1028, 1028]]
    one = "matmul 1: algorithm 66 tile 16 stages 35 split 1 option 3 cluster 8"
    assert slow == ["all choices", one]
    assert len(rows) == 8
    assert all(row["us"] == [1000] * 3 for row in rows if row["name"] not in slow)


def test_a_run_that_fails_is_told(tmp_path):
    program = tmp_path / "retrograd"
    program.write_text("#!/bin/sh\necho no GPU here >&2\nexit 1\n")
    program.chmod(0o755)
    command = [
        sys.executable, conftest.ROOT / "bench/choices.py", "graph", TUNED, "--retrograd", program,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "bench/choices.py: no GPU here\n"
