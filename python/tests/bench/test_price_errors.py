"""Errors of prices: which steps count, how they are summed up, what a packed file holds."""

import json
import sys

import price_errors as prices
import pytest


def step(measured, predicted, kind="kernel", ops="add", read=8):
    return prices.Step(kind, ops, predicted, measured, read, 4)


def test_steps_of_launches_and_noise_do_not_count():
    steps = [step(9.9, 30), step(10.1, 12), step(40, 50, kind="matmul")]
    assert prices.counted(steps, kernels_alone=False) == steps[1:]
    assert prices.counted(steps, kernels_alone=True) == steps[1:2]


def test_errors_and_order_are_summed_up():
    of = prices.figures([[step(20, 10), step(40, 80), step(100, 60)]])
    assert of.error == pytest.approx((0.5 + 1 + 0.4) / 3)
    assert of.ratio == pytest.approx((0.5 * 2 * 0.6) ** (1 / 3))
    assert (of.pairs, of.in_order) == (3, 2)
    assert "pairs in order 66.7%" in prices.line("graph", of)


def test_pairs_are_of_one_graph_and_apart():
    of = prices.figures([[step(20, 10), step(20.5, 5)], [step(90, 1)]])
    assert of.pairs == 0
    assert "pairs in order -" in prices.line("all", of)
    assert "no step" in prices.line("none", prices.figures([[]]))


def test_the_furthest_off_come_first_alike_ones_together():
    steps = [step(20, 30), step(20, 30), step(50, 65, ops="mul")]
    lines = prices.worst(steps, 2)
    assert "2 x" in lines[0] and "add" in lines[0]
    assert "mul" in lines[1]


def test_a_packed_file_says_of_runs_what_they_printed(tmp_path, monkeypatch, capsys):
    run = {
        "predicted_us": 30.123, "measured_us": 40, "least_us": 39, "most_us": 41, "kernels": 1,
        "steps": [{
            "group": 0, "kind": "kernel", "ops": "add", "predicted_us": 30.123,
            "measured_us": 40, "least_us": 39, "read_bytes": 8, "written_bytes": 4,
        }],
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    out = tmp_path / "out.json"
    arguments = ["--pack", out, "--commit", "abc", "--device", "gpu", f"net={tmp_path}/run.json"]
    monkeypatch.setattr(sys, "argv", ["price_errors.py", *map(str, arguments)])
    prices.main()
    packed = json.loads(out.read_text())
    assert packed["commit"] == "abc"
    assert prices.read_steps(packed["rows"][0]) == [step(40, 30.12)]
    monkeypatch.setattr(sys, "argv", ["price_errors.py", str(out)])
    prices.main()
    assert "net " in capsys.readouterr().out
