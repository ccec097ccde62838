"""bench/run.py: which models it measures, and what it leaves when it is stopped or fails."""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import conftest
import pytest
import run
import torch
from bench_rows import KEY, example_row, row

RUN = conftest.ROOT / "bench" / "run.py"


def options(folder, again=False):
    return argparse.Namespace(out=folder, again=again)


def test_a_stopped_run_goes_on_with_the_models_that_have_no_figures(tmp_path):
    started = []

    def start(name, path):
        started.append(name)
        if name == "second" and len(started) == 2:
            raise KeyboardInterrupt
        run.write_row(path, row(name))

    with pytest.raises(KeyboardInterrupt):
        run.run_all(["first", "second", "third"], options(tmp_path), KEY, start)
    assert run.run_all(["first", "second", "third"], options(tmp_path), KEY, start) == []
    assert started == ["first", "second", "second", "third"]
    run.run_all(["first"], options(tmp_path, again=True), KEY, start)
    assert started[-1] == "first"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", json.dumps({"model": "x"}), json.dumps({"key": {**KEY, "commit": "b"}})]
)
def test_a_file_that_is_damaged_or_of_something_else_is_measured_again(tmp_path, text):
    path = run.path_of("model", tmp_path)
    path.write_text(text)
    started = []

    def start(name, path):
        started.append(name)
        run.write_row(path, row(name))

    assert run.run_all(["model"], options(tmp_path), KEY, start) == []
    assert started == ["model"]


def test_rows_whose_names_begin_alike_are_written_at_once(tmp_path, monkeypatch):
    """Models measured by processes side by side, each with a file of its own."""
    static, dynamic = tmp_path / "gpt2.static", tmp_path / "gpt2.dynamic"
    replace = os.replace

    def another_writes_meanwhile(source, target):
        monkeypatch.setattr(os, "replace", replace)
        run.write_row(dynamic, row("dynamic"))
        replace(source, target)

    monkeypatch.setattr(os, "replace", another_writes_meanwhile)
    run.write_row(static, row("static"))
    assert json.loads(static.read_text()) == row("static")
    assert json.loads(dynamic.read_text()) == row("dynamic")
    assert sorted(tmp_path.iterdir()) == [dynamic, static]


def test_a_model_that_fails_stops_no_other(tmp_path, capsys):
    def start(name, path):
        if name == "bad":
            return "exit status 7"
        run.write_row(path, row(name))
        return None

    assert run.run_all(["bad", "good"], options(tmp_path), KEY, start) == ["bad"]
    assert "bad: FAILED: exit status 7" in capsys.readouterr().out
    assert run.finished(run.path_of("good", tmp_path), KEY)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_measures_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, RUN, "golf_tiny", "--out", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "PyTorch sees no GPU" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["golf_tinny"], "golf_tinny"), (["golf_tiny", "--modes", "fast"], "eager")],
)
def test_what_it_does_not_know_is_refused_by_name(arguments, says):
    done = subprocess.run(
        [sys.executable, RUN, "--device", "cpu", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert says in done.stderr


def test_the_summary_of_a_row_is_one_line():
    assert run.summary(example_row("one", 10.0)).count("\n") == 0
    assert "0.500 of" in run.summary(example_row("one", 10.0))
    assert "OTHER SAVED BYTES" in run.summary(example_row("one", 10.0, saved_equal=False))
    assert run.summary(row("three")) == "three: refused: a test"
    assert isinstance(run.path_of("x", pathlib.Path("y")), pathlib.Path)
