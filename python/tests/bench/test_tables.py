"""The tables that bench/ makes of its results."""

import conftest
import largest
from bench_rows import example_row, row
from tables import (
    ablation_table, ops_table, readme_table, table_page, three_parts_table, training_table,
)  # fmt: skip


def test_the_table_shows_each_model_and_marks_what_is_not_comparable():
    newer = example_row("four", 10.0)
    newer["ours"]["deterministic"]["run_us"] = {"ahead": {"median": 3.9}, "waited": {"median": 42}}
    rows = [
        example_row("one", 10.0),
        newer,
        example_row("two", 5.0, saved_equal=False),
        row("three", machine={"device": "A GPU"}),
    ]
    table = readme_table.backward_table(rows)
    assert "| one | 10.0 | 10.0 | 20.0 | 20.0 | - | - | 0.50 | 0.50, 0.50 |" in table
    assert "| one | 20 / 30 | 1.0% / 5.0% | 10.0 / 30.0 | 9 | 2.1 / 4.3 | 4.0e-03 /" in table
    assert "| four | 20 / 30 | 1.0% / 5.0% | 10.0 / 30.0 | 4 / 42 | 2.1" in table
    assert "| two (other saved bytes) | 5.0 |" in table
    assert "| three | refused: a test |" in table


def test_equal_steps_of_ours_stand_together_beside_the_largest_kernels_of_the_best_mode():
    steps = [
        {"kind": "kernel", "ops": "mul add", "measured_us": 30.0, "predicted_us": 20.0},
        {"kind": "matmul", "ops": "matmul", "measured_us": 50.0, "predicted_us": 40.0,
         "m": 2, "n": 3, "k": 4, "batch": 1},
        {"kind": "kernel", "ops": "mul add", "measured_us": 30.0, "predicted_us": 20.0},
    ]  # fmt: skip
    measured = example_row("one", 10.0)
    measured["ours"]["deterministic"]["steps"] = steps
    kernel = {"name": "triton_per_fused", "count": 7, "ms": 1.5}
    measured["pytorch"]["eager"]["kernels"]["largest"] = [kernel]
    table = largest.table(measured).splitlines()
    assert table[2] == "| 0.06 (0.04), 2 | mul add | 1.50, 7 | triton_per_fused |"
    assert table[3] == "| 0.05 (0.04), 1 | matmul 2x3x4 | |  |"


def test_readme_shows_the_tables_of_the_results():
    readme = (conftest.ROOT / "README.md").read_text()
    assert readme_table.rewritten(readme) == readme


def training_row(sides):
    return training_table.Row({"model": "m", "sides": sides})


def test_a_training_table_compares_like_with_like():
    def side(**figures):
        return {key: {"median": value} for key, value in figures.items()}

    sides = {
        "inductor": side(backward_ms=10, step_ms=20, backward_host_us=900) | {"peak_bytes": 100},
        "reduce_overhead": side(backward_ms=8, step_ms=12, backward_host_us=400),
        "retrograd": side(backward_ms=4, step_ms=16, backward_host_us=100) | {"peak_bytes": 90},
    }
    row = training_row(sides)
    assert row.pair("backward_ms") == (4, 8)
    assert row.pair("backward_host_us") == (100, 400)
    assert row.ratio("peak_bytes") == 0.9
    # PyTorch's forward ran by CUDA graphs, ours did not.
    assert row.pair("step_ms") == (None, 12) and row.ratio("step_ms") is None
    row = training_row(sides | {"retrograd_reduce_overhead": side(step_ms=9)})
    assert row.pair("step_ms") == (9, 12)
    assert training_row(sides | {"retrograd": {"failed": "why"}}).ratio("backward_ms") is None


def test_the_page_holds_the_tables_of_the_results():
    page = table_page.PAGE.read_text()
    assert table_page.written(page, "training_*", training_table.table) == page
    assert table_page.written(page, "ops_*.json", ops_table.table) == page
    assert table_page.written(page, "three_parts_*.json", three_parts_table.table) == page


def test_an_ablation_table_shows_means_extremes_and_what_is_unknown():
    def row(model, whole, without):
        return {
            "model": model,
            "whole": {"gpu_ms": {"median": whole}, "arena_bytes": 100},
            "without": without,
        }

    result = {
        "command": "ablate", "commit": "abc", "machine": {"device": "A GPU", "pytorch": "2"},
        "repeat": 3, "parts": {"staged rows": {}, "windows": {},
                                "measured prices of calls": {}, "pitches": {}},
        "lines": {"of": {"staged rows": 40}},
        "models": [
            row("a", 2.0, {"staged rows": {"ratio": 2.0, "arena_bytes": 400},
                           "windows": {"same": True},
                           "measured prices of calls": {"ratio": 2.0},
                           "pitches": {"refused": "no"}}),
            row("b", 1.0, {"staged rows": {"ratio": 8.0, "arena_bytes": 100},
                           "windows": {"ratio": 1.0},
                           "measured prices of calls": {"same": True},
                           "pitches": {"not_measured": "late"}}),
        ],
    }  # fmt: skip
    lines = ablation_table.table(result)
    assert "| staged rows | 40 | 2 of 2 | 4.000 | 8.000 b | 2.000 a | 2.00 |  |" in lines
    # Of a deleted part the lines that went with it.
    assert "| windows, deleted | 88 | 1 of 2 | 1.000 | 1.000 | 1.000 | 1.00 |  |" in lines
    # What is off by default is worth what the whole loses by it.
    assert "| measured prices of calls | - | 1 of 2 | 0.707 | 1.000 | 0.500 a | 1.00 |  |" in lines
    assert "| pitches | - | 2 of 2 | - | - | - | - | 2 |" in lines


def test_a_table_of_three_parts_shows_both_kinds_and_says_what_is_predicted():
    def row(kind, whole, ratio):
        without = {part: {"ratio": ratio} for part in three_parts_table.PARTS}
        without[three_parts_table.PARTS[0]] = {"predicted_ratio": 3.0}
        without[three_parts_table.PARTS[1]] = {"same": True}
        return {"model": f"{kind}:a@n=4,m=2", "sizes": kind, "whole": whole, "without": without}

    result = {
        "command": "ablate", "commit": "abc", "machine": {"device": "A GPU", "pytorch": "2"},
        "repeat": 3, "models": [
            row("dynamic", {"predicted_us": 2000.0}, 2.0),
            row("static", {"gpu_ms": {"median": 1.0}}, 8.0),
        ],
    }  # fmt: skip
    lines = three_parts_table.lines(result)
    assert lines[4] == "| a | static, n=4, m=2 | 1.00 | 3.000 predicted | 1.000 | 8.000 | 8.000 |"
    dynamic = "| a | dynamic, n=4, m=2 | 2.00 predicted | 3.000 predicted | 1.000 | 2.000 | 2.000 |"
    assert lines[5] == dynamic
    assert lines[6] == "| geometric mean | static |  | 3.000 predicted | 1.000 | 8.000 | 8.000 |"
