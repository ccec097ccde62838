"""bench/ops.py: what can be tried without a GPU."""

import argparse
import json
import subprocess
import sys
import time

import captured_errors
import conftest
import ops
import pytest
import torch
from built_library import LIBRARY, needs_library
from measure import float64, ours
from workloads import op_models

# Ops whose backward is refused, and a part of the reason given.
REFUSED = {}


def errors_of_ours_and_pytorch(name, folder):
    captured = op_models.capture(name + op_models.TINY, "cpu")
    path = folder / f"{name}.bwd.pb"
    found = captured_errors.of_ours_and_pytorch(captured, LIBRARY, path)
    return *found, captured_errors.tolerance(captured)


@needs_library
@pytest.mark.parametrize("name", op_models.MODELS)
def test_an_op_is_captured_and_its_gradients_are_right(name, tmp_path):
    from retrograd.errors import ExportError

    if name.startswith("spherical_harmonics"):
        pytest.importorskip("e3nn")
    if name in REFUSED:
        with pytest.raises((ours.Refused, ExportError), match=REFUSED[name]):
            errors_of_ours_and_pytorch(name, tmp_path)
        return
    found, theirs, tolerance = errors_of_ours_and_pytorch(name, tmp_path)
    assert found
    assert all(e <= max(tolerance, 4 * t) for e, t in zip(found, theirs))


@pytest.mark.parametrize("name", ["rms_norm_2048x8192", "rope", "gat", "linear_cross_entropy"])
def test_the_captured_gradients_are_autograds(name):
    captured = op_models.capture(name + op_models.TINY, "cpu")
    model, args = op_models.make(name + op_models.TINY, "cpu")
    with op_models.autocast(name, "cpu"):
        loss = model(*args)
    wanted = [t for t in (*model.parameters(), *args) if t.requires_grad]
    found = [o.recorded for o in captured.outputs if o.node is not None]
    for gradient in torch.autograd.grad(loss, wanted):
        alike = [f for f in found if f.shape == gradient.shape and f.dtype == gradient.dtype]
        assert any(float64.errors([f], [gradient])[0] < 2e-2 for f in alike)


def test_a_row_is_made_at_other_sizes():
    _, (x, _) = op_models.make("sort_8192x1024:rows=5,columns=7", "cpu")
    assert x.shape == (5, 7)
    op, (x, weight) = op_models.make("max_pool_tiny:edge=7", "cpu")
    assert x.shape == (2, 4, 7, 7) and weight.shape == (2, 4, 4, 4)
    op(x, weight).backward()


@pytest.mark.parametrize("name, words", [
    ("sofmax", "no op 'sofmax'; there are"),
    ("max_pool:side=3", "has no side; its sizes are batch, channels, edge"),
    ("max_pool:edge", "is no KEY=VALUE"),
    ("max_pool:", "is no KEY=VALUE"),
    ("max_pool:edge=2.5", "edge is a positive number, not 2.5"),
    ("max_pool:edge=-3", "edge is a positive number, not -3"),
    ("max_pool:edge=wide", "edge is a positive number, not 'wide'"),
])  # fmt: skip
def test_what_is_no_op_or_no_size_of_it_is_said(name, words, capsys):
    with pytest.raises(SystemExit):
        ops.parsed([name])
    assert words in capsys.readouterr().err


def options(path, **more):
    known = {"out": path, "commit": "abc", "sides": ["ours"], "budget": 60, "again": False}
    known |= {"new_indices": False, "no_kept_indices": False}
    return argparse.Namespace(**known | more)


def row(name, options):
    return {"op": name, "commit": options.commit, "sides": options.sides,
            "status": "refused", "reason": "a test"}  # fmt: skip


def test_what_the_file_holds_for_this_commit_and_these_sides_is_passed_over(tmp_path):
    path, started = tmp_path / "ops.json", []

    def one(name, options):
        started.append(name)
        return row(name, options)

    assert ops.run(["first"], options(path), one) == []
    assert ops.run(["first", "second"], options(path), one) == []
    assert started == ["first", "second"]
    ops.run(["first"], options(path, commit="abd"), one)
    ops.run(["second"], options(path, sides=["ours", "eager"]), one)
    ops.run(["second"], options(path, sides=["ours", "eager"], again=True), one)
    assert started[2:] == ["first", "second", "second"]
    ops.run(["first"], options(path, commit="abd", new_indices=True), one)
    assert started[5:] == ["first"]
    assert [r["op"] for r in json.loads(path.read_text())["ops"]] == ["first", "second"]


def test_a_run_stops_within_its_budget_and_keeps_what_it_has(tmp_path):
    path = tmp_path / "ops.json"

    def one(name, options):
        if name == "second":
            try:
                time.sleep(60)
            except Exception:  # what a compiler does with whatever stops it
                pass
        return row(name, options)

    begin = time.monotonic()
    left = ops.run(["first", "second", "third"], options(path, budget=1), one)
    assert left == ["second", "third"]
    assert time.monotonic() - begin < 20
    assert list(ops.rows_of(path)) == ["first"]


def test_a_time_limit_inside_another_ends_with_the_sooner():
    begin = time.monotonic()
    with ops.within(60):
        with pytest.raises(ops.OutOfTime), ops.within(0.05):
            time.sleep(30)
    with pytest.raises(ops.OutOfTime), ops.within(0.05), ops.within(60):
        time.sleep(30)
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 0, "ops": []}'])
def test_a_damaged_file_holds_no_rows(tmp_path, text):
    path = tmp_path / "ops.json"
    path.write_text(text)
    assert ops.rows_of(path) == {}


def test_the_floor_counts_what_is_read_and_written_once():
    captured = op_models.capture("swiglu_16384x11008_tiny", "cpu")
    # Two inputs, the weight, two gradients; the loss's gradient.
    assert ops.floor_bytes(captured) == 5 * 8 * 99 * 2 + 2


@needs_library
def test_sides_are_measured_beside_each_other(tmp_path):
    path = tmp_path / "ops.json"
    done = subprocess.run(
        [sys.executable, conftest.ROOT / "bench/ops.py", "softmax_4096x12672_tiny",
         "--device", "cpu", "--sides", "ours,eager", "--repeat", "2",
         "--commit", "abc", "--library", LIBRARY, "--out", path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (measured,) = json.loads(path.read_text())["ops"]
    assert measured["status"] == "measured" and measured["best"] == "eager"
    assert measured["ratio"] > 0 and measured["ours"]["unequal_gradients_of_4_runs"] == 0
    assert measured["ours"]["errors"]["worst"] < 1e-2
    assert measured["ours"]["steps"]["first"][0]["measured_us"] > 0
    assert "softmax_4096x12672_tiny: ours" in done.stdout


@needs_library
@pytest.mark.parametrize("switches", [["--new-indices"], ["--new-indices", "--no-kept-indices"]])
def test_runs_get_other_indices_by_turns_and_are_still_right(switches, tmp_path):
    path = tmp_path / "ops.json"
    done = subprocess.run(
        [sys.executable, conftest.ROOT / "bench/ops.py", "message_passing_fp32_tiny",
         "--device", "cpu", "--sides", "ours", "--repeat", "2", *switches,
         "--commit", "abc", "--library", LIBRARY, "--out", path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (measured,) = json.loads(path.read_text())["ops"]
    kept = "sorted in each run" if "--no-kept-indices" in switches else "kept"
    assert measured["indices"] == f"new, {kept}"
    assert measured["ours"]["errors"]["worst"] < 1e-5


def test_new_indices_are_the_given_ones_moved_on_by_turns():
    captured = op_models.capture("message_passing_fp32" + op_models.TINY, "cpu")
    tensors = [i.recorded for i in captured.inputs]

    class Bound:
        inputs, gradients, runs = tensors, (), []

        def bind(self, inputs, gradients):
            self.bound = inputs

        def run(self):
            self.runs.append(self.bound)

    run = ops._with_new_indices(Bound())
    run()
    run()
    moved, same = Bound.runs
    assert same is tensors
    for tensor, other in zip(tensors, moved):
        if tensor.dtype == torch.int64:
            assert torch.equal(other.flatten(), tensor.flatten().roll(1))
        else:
            assert other is tensor


def test_an_op_that_it_does_not_know_is_refused_by_name():
    done = subprocess.run(
        [sys.executable, conftest.ROOT / "bench/ops.py", "softmaxx", "--device", "cpu"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "softmaxx" in done.stderr
