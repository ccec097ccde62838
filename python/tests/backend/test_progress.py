"""Lines about what takes long."""

import logging
import os
import threading
import time

import pytest

from retrograd.backend import messages


@pytest.fixture
def lines(monkeypatch):
    """What is logged while the first line comes after 50 ms and others after 100 more."""
    monkeypatch.setattr(messages, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(messages, "EVERY_SECONDS", 0.1)
    logged = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    messages.log.addHandler(handler)
    yield logged
    messages.log.removeHandler(handler)


def _wait_for(condition):
    """Whether it holds within 20 seconds."""
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_a_long_block_is_told_again_and_again_with_its_stage(lines):
    with messages.progress("loading") as stage:
        assert _wait_for(lambda: lines)
        stage("timing calls")
        assert _wait_for(lambda: any(line.startswith("timing calls") for line in lines))
    assert lines[0] == "loading (0 s)"


def test_nothing_is_told_behind_the_end(lines):
    with messages.progress("loading"):
        assert _wait_for(lambda: lines)
    told = len(lines)
    time.sleep(0.3)
    assert len(lines) == told


def test_blocks_beside_and_within_each_other_are_all_told(lines):
    with messages.progress("outer"), messages.progress("inner"):
        assert _wait_for(lambda: {line.split()[0] for line in lines} == {"outer", "inner"})
        lines.clear()
    with messages.progress("later"):  # behind a time without blocks
        assert _wait_for(lambda: lines)
    assert {line.split()[0] for line in lines} == {"later"}


def test_a_block_is_told_in_time_beside_one_that_waits_long(lines, monkeypatch):
    monkeypatch.setattr(messages, "EVERY_SECONDS", 60)
    with messages.progress("outer"):
        assert _wait_for(lambda: lines)
        with messages.progress("inner"):
            assert _wait_for(lambda: len(lines) == 2)


def test_an_error_ends_the_block(lines):
    with pytest.raises(ValueError), messages.progress("failing"):
        raise ValueError
    time.sleep(0.2)
    assert not lines


def test_blocks_share_one_thread():
    def threads():
        return [t for t in threading.enumerate() if t.name == "retrograd-progress"]

    for _ in range(20):
        with messages.progress("short"):
            assert len(threads()) == 1
    assert len(threads()) == 1


def test_a_forked_process_tells_of_its_blocks(lines):
    with messages.progress("of the parent"):
        child = os.fork()
        if child == 0:
            lines.clear()
            with messages.progress("of the child"):
                told = _wait_for(lambda: lines)
            os._exit(0 if told and all("child" in line for line in lines) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
