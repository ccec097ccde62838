"""bench/measure/at_once.py: processes that take turns."""

import subprocess
import sys
import time

import conftest
from measure import at_once

TAKES_TURNS = f"""
import sys, time
sys.path.insert(0, {str(conftest.ROOT / "bench")!r})
from measure import at_once
print("half a line", end="")
at_once.await_turn()
with open(sys.argv[1], "a") as log:
    log.write("begins ")
time.sleep(0.2)
with open(sys.argv[1], "a") as log:
    log.write("ends ")
"""


def python(text, *arguments):
    return [sys.executable, "-c", text, *map(str, arguments)]


def test_one_process_at_a_time_has_its_turn(tmp_path):
    log = tmp_path / "log"
    commands = {name: python(TAKES_TURNS, log) for name in "abc"}
    assert at_once.run(commands, 60) == {}
    assert log.read_text() == "begins ends " * 3


def test_a_process_that_fails_or_is_late_stops_no_other(tmp_path):
    log = tmp_path / "log"
    # What it has started holds its output open.
    late = ["sh", "-c", "sleep 120 & sleep 120"]
    begin = time.monotonic()
    wrong = at_once.run(
        {"late": late, "fails": python("import sys; sys.exit(3)"), "works": python(TAKES_TURNS, log)},
        5,
    )  # fmt: skip
    assert wrong == {"late": "not finished in time", "fails": "exit status 3"}
    assert log.read_text() == "begins ends "
    assert time.monotonic() - begin < 90  # it did not wait for them


def test_a_process_that_has_ended_is_not_late_when_it_is_read():
    """Processes are read one after the other: the limit of one may pass while another is waited for."""
    ended = at_once._Process(python("import sys; sys.exit(3)"))
    ended._process.wait()
    ended._stop_late()
    ended.prepare()
    assert ended.measure(60) == "exit status 3"
    leaves = at_once._Process(["sh", "-c", "sleep 120 &"])  # what holds the output open
    leaves._process.wait()
    leaves._stop_late()
    leaves.prepare()
    assert leaves.measure(60) == "not finished in time"


def test_a_prepared_process_is_not_late_while_another_is_waited_for():
    slow = at_once._Process(["sh", "-c", "sleep 4; echo prepared; read turn"])
    quick = at_once._Process(["sh", "-c", "echo prepared; read turn"])
    slow.limit(60)
    quick.limit(2)
    at_once._prepare([slow, quick])
    assert [process.measure(60) for process in (slow, quick)] == ["", ""]


def test_a_process_without_anybody_who_gives_turns_ends(tmp_path):
    log = tmp_path / "log"
    done = subprocess.run(
        python(TAKES_TURNS, log), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and "nobody is there to give turns" in done.stderr
    assert not log.exists()
