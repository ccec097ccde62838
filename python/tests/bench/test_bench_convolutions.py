"""bench/convolutions.py: what can be tried without a GPU."""

import argparse
import json
import subprocess
import sys

import conftest
import convolutions
import pytest
from built_library import LIBRARY, needs_library

SHAPES = """# tiny ones
model,count,n,c,h,w,k,r,s,stride,pad,dil,groups,needs_dx
one,3,2,16,5,5,12,1,1,1x1,0x0,1x1,1,1
one,1,2,3,9,8,4,3,3,2x2,1x1,1x1,1,0
two,2,2,6,7,7,6,5,3,1x1,2x1,1x2,6,1
two,1,2,16,5,5,12,1,1,1x1,0x0,1x1,1,1
two,4,2,8,1,1,6,1,1,1x1,0x0,1x1,1,1
"""


def test_the_shapes_of_the_models_are_read_once_each():
    shapes = convolutions.read_shapes(convolutions.SHAPES)
    assert len(shapes) == 128
    assert sum(count for models in shapes.values() for count in models.values()) == 243
    assert len({shape.name() for shape in shapes}) == 128
    first = next(iter(shapes))
    assert first.y == (2, 2048, 7, 7)
    assert first.is_pointwise


@needs_library
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_all_forms_of_ours_give_the_gradients_and_a_second_call_measures_nothing_again(
    tmp_path, layout
):
    (tmp_path / "shapes.csv").write_text(SHAPES)
    out = tmp_path / "out.json"
    command = [
        sys.executable, conftest.ROOT / "bench/convolutions.py", "--here", "--device", "cpu",
        "--dtype", "fp32",
        "--layout", layout, "--shapes", tmp_path / "shapes.csv", "--out", out, "--rounds", "2",
        "--library", LIBRARY, "--commit", "abc",
        "--sides", "ours,ours_other_form,ours_nondeterministic,aten",
    ]  # fmt: skip
    for again in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        result = json.loads(out.read_text())
        if not again:
            first = result
    assert result == first
    assert [row["models"] for row in result["rows"]] == [
        {"one": 3, "two": 1}, {"one": 1}, {"two": 2}, {"two": 4}
    ]  # fmt: skip
    for row in result["rows"]:
        assert max(row["errors"].values()) < 1e-6
        assert row["equal_bits"]["ours"]
        assert row["us"]["ours"]["median"] > 0
    forms = ["ours_other_form" in row["us"] for row in result["rows"]]
    assert forms == [True, False, False, True]
    ops = [{call["op"] for call in row["calls"]["ours"]} for row in result["rows"]]
    assert ops[1] == {"convolution_weight_gradient"}
    assert ops[3] == set()  # of one pixel: a kernel adds products up
    other = {call["op"] for call in result["rows"][0]["calls"]["ours_other_form"]}
    assert (ops[0] == {"matmul"}) == (layout == "nhwc")
    assert (other == {"matmul"}) == (layout == "nchw")
    assert "| two |" in done.stdout


def example_row(shape, ours_us, deterministic, free, other=None):
    us = {"ours": ours_us, "aten_deterministic": deterministic, "aten": free}
    calls = {"ours": [{"op": "matmul", "by": "cuBLASLt"}]}
    if other is not None:
        us["ours_other_form"] = other
    return {
        "shape": shape, "models": {"net": 2}, "equal_bits": {"ours": True}, "calls": calls,
        "us": {side: {"median": value, "least": value, "most": value} for side, value in us.items()},
        "errors": {"ours": 1e-3, "aten": 2e-3},
    }  # fmt: skip


def result_of(rows):
    key = {"commit": "abc", "dtype": "bf16", "layout": "nhwc"}
    machine = {"device": "A GPU", "driver": "1", "pytorch": "2.11.0"}
    return {"machine": machine, "key": key, "command": "c", "unit": "us", "rows": rows}


def test_the_table_says_mean_and_worst_and_what_is_above_the_margin():
    rows = [
        example_row("a", 8.0, 10.0, 8.0, other=4.0),
        example_row("b", 20.0, 10.0, 16.0),
        {"shape": "c", "models": {"net": 1}, "failed": "refused"},
    ]
    table = convolutions.table(result_of(rows))
    assert "| a | 8.00 | 10.00 | 8.00 | 0.800 | 1.000 | 1.0e-03, 2.0e-03 | yes | cuBLASLt |" in table
    assert "| c | refused |" in table
    assert "ours / ATen deterministic: geometric mean 1.265, worst 2.000 (b), 1 of 2 above" in table
    assert "as matmuls / as convolutions: geometric mean 2.000, worst 2.000 (a)" in table
    assert "| net | 56 | 40 | 36 |" in table


@pytest.mark.parametrize("side", ["ours", "ours_other_form"])
@pytest.mark.parametrize("error", [1.2, float("nan")])
def test_a_wrong_gradient_counts_nowhere_and_is_named(side, error):
    wrong = example_row("wrong", 1.0, 100.0, 100.0, other=50.0)
    wrong["errors"][side] = error
    assert convolutions.line_of(wrong).startswith(f"wrong: WRONG, error of {side}")
    text = convolutions.table(result_of([example_row("right", 50.0, 100.0, 100.0), wrong]))
    assert "ours / ATen deterministic: geometric mean 0.500" in text
    assert "as matmuls / as convolutions: nothing measured" in text
    assert f"WRONG, and left out above: wrong, error of {side}" in text
    assert "| net | 100 | 200 | 200 |" in text


@pytest.mark.parametrize("theirs", [2e-3, float("nan"), float("inf")])
def test_roundings_are_not_wrong_whatever_atens_error_is(theirs):
    row = example_row("right", 50.0, 100.0, 100.0)
    row["errors"] = {"ours": 1e-5, "aten": theirs}
    assert convolutions.wrong_sides(row) == []
    assert "WRONG" not in convolutions.table(result_of([row]))


def test_no_row_is_begun_that_may_not_be_done_in_time():
    shapes = {shape: {"m": 1} for shape in list(convolutions.read_shapes(convolutions.SHAPES))[:5]}
    now = [0.0]
    saved = []

    def measure_one(shape):
        now[0] += 50.0
        return {"us": {"ours": {"median": 1.0}}}

    def go_on(result):
        options = argparse.Namespace(minutes=2.5)
        return convolutions.measure_all(
            shapes, options, result, lambda r: saved.append(len(r["rows"])), measure_one,
            clock=lambda: now[0],
        )  # fmt: skip

    result = {"rows": []}
    assert go_on(result) == 2  # three of 50 s fit into 150
    assert go_on(result) == 0
    assert [row["shape"] for row in result["rows"]] == [shape.name() for shape in shapes]
    assert saved == [1, 2, 3, 4, 5]


def test_the_table_says_how_often_ours_make_a_gradient_and_what_they_win():
    ours = {
        "op": "convolution_input_gradient", "by": "kernels of ours, a tile: 2.0 us",
        "beside": ["kernels of ours, another: 2.1 us", "cudnn: 4.0 us"],
    }  # fmt: skip
    others = {
        "op": "convolution_weight_gradient", "by": "cuDNN, plan 2 of 9:  eng1: 3.0 us, workspace 0",
        "beside": ["kernels of ours, a tile: 6.0 us"],
    }  # fmt: skip
    alone = {
        "op": "convolution_weight_gradient", "by": "cuDNN, plan 1 of 1:  eng1: 3.0 us", "beside": [],
    }  # fmt: skip
    row = {"calls": {"ours": [ours, others, alone, {"op": "matmul", "by": "the library"}]}}
    rows = [row, {"shape": "refused", "failed": "no memory"}]
    assert convolutions.gradients(rows) == [(True, 0.5), (False, 2.0)]
    assert "gradients by kernels of ours: 1 of 2" in convolutions.gradients_summary(rows)
    assert "geometric mean 0.500, worst 0.500" in convolutions.gradients_summary(rows)
    assert convolutions.gradients_summary(rows[1:]) == "gradients by kernels of ours: none"
