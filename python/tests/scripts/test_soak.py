"""scripts/soak.py: turns, targets, what it remembers and when it fails; one real turn of the graphs."""

import os
import pathlib
import sys
import types

import pytest
import soak

real_output_of = soak.output_of


def check_of(done, failures=()):
    """A check that does so much in a turn."""

    class Check:
        unit, target, title = "things", 100, "things"

        @staticmethod
        def turn(state, seconds):
            state["done"] += done
            return list(failures)

        @staticmethod
        def details(state):
            return ""

    return Check


def run(monkeypatch, path, checks, seconds=5):
    monkeypatch.setattr(soak, "CHECKS", checks)
    ledger = soak.Ledger(path)
    soak.soak({name: check for name, check in checks.items()}, ledger, seconds)
    return ledger


def test_checks_take_turns_until_their_targets(monkeypatch, tmp_path):
    ledger = run(monkeypatch, tmp_path / "s.json", {"a": check_of(30), "b": check_of(70)})
    assert ledger.of("a")["done"] == 120
    assert ledger.of("b")["done"] == 140
    assert not ledger.failed()


def test_a_second_run_goes_on(monkeypatch, tmp_path):
    checks = {"a": check_of(30)}
    run(monkeypatch, tmp_path / "s.json", checks, seconds=0)
    first = soak.Ledger(tmp_path / "s.json")
    first.of("a")["done"] = 99
    first.note("a", 1, [])
    ledger = run(monkeypatch, tmp_path / "s.json", checks)
    assert ledger.of("a")["done"] == 129
    assert "| things | 129 things | 100 |" in ledger.table()


def test_a_dead_process_is_told_with_its_seeds_and_its_signal(monkeypatch):
    dies = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    graphs = soak.Graphs(types.SimpleNamespace(test=lambda name: dies), 2)
    monkeypatch.setattr(soak, "output_of", lambda command, timeout:
                        real_output_of(command[:3], timeout))
    state = {}
    assert graphs.turn(state, 1) == [f"from seed {seed} in steps of 2, killed by signal 9: "
                                     for seed in (1, 2)]


def test_a_failure_stays(monkeypatch, tmp_path):
    run(monkeypatch, tmp_path / "s.json", {"a": check_of(100, ["seed 7"])})
    ledger = run(monkeypatch, tmp_path / "s.json", {"a": check_of(100)})
    assert ledger.of("a")["failures"] == ["seed 7"]
    assert ledger.failed()


def test_a_turn_of_random_graphs_counts_and_goes_on():
    build = pathlib.Path(os.environ["RETROGRAD_BIN_DIR"]).resolve().parent
    tools = types.SimpleNamespace(test=lambda name: [str(build / "tests" / name)])
    if not (build / "tests/soak_graphs").exists():
        pytest.skip("soak_graphs is not built")
    state = {"done": 0}
    graphs = soak.Graphs(tools, jobs=2)
    assert graphs.turn(state, 1) == []
    done, following = state["done"], state["next"]
    assert done >= 2 and following >= 3
    assert graphs.turn(state, 1) == []
    assert state["done"] > done and state["next"] > following


def test_a_program_that_dies_is_a_failure(tmp_path):
    dies = tmp_path / "soak_graphs"
    dies.write_text("#!/bin/sh\necho went wrong >&2\nexit 139\n")
    dies.chmod(0o755)
    state = {"done": 0}
    failures = soak.Graphs(types.SimpleNamespace(test=lambda _: [str(dies)]), 1).turn(state, 1)
    assert failures == ["from seed 1 in steps of 1, exit status 139: went wrong"]
