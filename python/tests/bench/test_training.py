"""bench/training.py and bench/curves.py on the CPU."""

import json
import subprocess
import sys

import conftest
import curves
import pytest


def test_training_steps_are_measured_beside_each_other(tmp_path):
    done = subprocess.run(
        [sys.executable, conftest.ROOT / "bench/training.py", "golf_tiny", "--device", "cpu",
         "--repeat", "1", "--sides", "eager,retrograd", "--out", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    row = json.loads((tmp_path / "golf_tiny.json").read_text())
    assert set(row["sides"]) == {"eager", "retrograd"}
    assert row["sides"]["retrograd"]["fell_back"] == []
    for side in row["sides"].values():
        assert side["backward_ms"]["median"] > 0 and side["step_ms"]["median"] > 0
    assert "| golf_tiny | " in done.stdout and "geometric mean" in done.stdout


def test_models_that_are_compiled_side_by_side_have_the_same_rows(tmp_path):
    pytest.importorskip("timm")
    vit = "timm:test_vit:1"
    done = subprocess.run(
        [sys.executable, conftest.ROOT / "bench/training.py", "golf_tiny", vit, "--device", "cpu",
         "--repeat", "1", "--sides", "eager,retrograd", "--no-reference", "--at-once", "2", "--out", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for file in ("golf_tiny.json", "timm_test_vit_1.json"):
        row = json.loads((tmp_path / file).read_text())
        assert set(row["sides"]) == {"eager", "retrograd"}
        for side in row["sides"].values():
            assert side["backward_ms"]["median"] > 0 and side["step_ms"]["median"] > 0


def test_a_name_that_says_no_model_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, conftest.ROOT / "bench/training.py", "timm:resnet50", "--device", "cpu",
         "--out", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "is no SOURCE:NAME:SIZES" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_loss_curve_begins_as_eagers():
    eager, ours = (curves.train("gpt", side, 0, 2, "cpu") for side in ("eager", "retrograd"))
    assert ours == pytest.approx(eager, rel=1e-3)


def test_distances_of_curves():
    told = curves.told({
        "eager": [[1.0, 2.0], [2.0, 4.0]], "inductor": [[1.0, 2.0], [2.0, 4.0]],
        "retrograd": [[1.5, 2.0], [2.0, 4.5]],
    })  # fmt: skip
    assert told == {"between_seeds": 1.5, "inductor": 0.0, "retrograd": 0.25}
