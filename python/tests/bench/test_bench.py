"""bench/: what can be tried without a GPU."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import conftest
import curves
import gemm_tiles
import largest
import pytest
import run
import torch
from measure import ablation_parts, float64, ours, pytorch, watch
from retrograd.export import captured_backwards
from tables import ablation_table, ops_table, readme_table, table_page, training_table
from torch import nn
from workloads import ablation_models

KEY = {"format": 1, "commit": "abc", "repeat": 3, "modes": []}
RUN = conftest.ROOT / "bench" / "run.py"


def row(name, **more):
    return {"key": KEY, "model": name, "status": "refused", "reason": "a test", **more}


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


def test_idle_time_is_what_no_kernel_covers():
    events = [
        (0, 5, "a kernel of before"), (5, 100, "spin_kernel"),
        (110, 120, "k"), (115, 130, "m"), (150, 160, "k"), (110, 160, "## Call CompiledFxGraph ##"),
    ]  # fmt: skip
    figures = watch.of_events(events)
    assert figures["count"] == 3
    assert figures["busy_ms"] == pytest.approx(0.030)
    assert figures["span_ms"] == pytest.approx(0.050)
    assert figures["idle"] == pytest.approx(0.4)
    assert figures["largest"][0] == {"name": "k", "count": 2, "ms": pytest.approx(0.020)}


class Small(nn.Module):
    """A norm, attention with fewer heads of keys than of queries, a table that is looked up."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(7, 32), nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 64)

    def forward(self, ids):
        x = self.norm(self.table(ids))
        q, k, v = self.qkv(x).split((32, 16, 16), -1)
        q, k, v = (t.view(2, 5, -1, 8).transpose(1, 2) for t in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return (torch.tanh(y) ** 2).sum()


def captured(model, *args):
    (result,) = captured_backwards(model, args, keep_on_device=True, joint_passes=True)
    return result


def test_the_float64_reference_is_what_autograd_gives_in_float64():
    torch.manual_seed(3)
    model, ids = Small(), torch.randint(0, 7, (2, 5))
    references = float64.gradients(captured(model, ids))
    wide = Small().double()
    wide.load_state_dict(model.state_dict())
    wide(ids).backward()
    expected = [p.grad for p in wide.parameters()]
    found = [r for r in references if r is not None]
    assert all(r.dtype == torch.float64 for r in found)
    # What the forward saved is fp32.
    assert max(float64.errors(found, expected)) < 1e-5


def test_errors_of_gradients_that_are_zero_are_relative_to_all():
    references = [torch.tensor([3.0, 4.0]), torch.zeros(2)]
    found = float64.errors([torch.tensor([3.0, 4.5]), torch.tensor([0.0, 5e-6])], references)
    assert found == pytest.approx([0.1, 0.1])


def test_what_a_backward_is_given_is_counted_without_its_tangents():
    module = captured(Small(), torch.zeros(2, 5, dtype=torch.int64)).fx_graph.owning_module
    figures = pytorch.inputs_of(module)
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    assert figures["tensors"] == len(placeholders) - 1 == len(figures["lines"])
    assert figures["bytes"] >= 2 * 5 * 64 * 4


LIBRARY = pathlib.Path(
    os.environ.get("RETROGRAD_BIN_DIR", conftest.ROOT / "build/release/bin"), ours.NAME
)


def small_backward():
    torch.manual_seed(5)
    result = captured(Small(), torch.randint(0, 7, (2, 5)))
    return result, [i.recorded for i in result.inputs]


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_ours_runs_in_this_process_on_the_captured_tensors(tmp_path):
    from retrograd import bundle
    from retrograd.translate import translate

    result, inputs = small_backward()
    graph, constants = translate(result, "small")
    bundle.write_atomically(tmp_path / "small.bwd.pb", graph.SerializeToString())
    with ours.Backward(LIBRARY, tmp_path / "small.bwd.pb", "host") as backward:
        gradients = ours.room_for(result.outputs, torch.device("cpu"))
        backward.bind([*inputs, *constants.values()], gradients)
        backward.run()
        assert max(float64.errors(gradients, float64.gradients(result))) < 1e-5
        said = backward.describe()
        assert said["runs"] == 1
        assert len(said["inputs"]) == len(inputs) + len(constants)
        assert said["peak_bytes"] > 0
        assert {s["kind"] for s in backward.time_steps(1)} >= {"kernel", "matmul", "attention"}
        with pytest.raises(ValueError, match="inputs given; the graph has"):
            backward.bind(inputs[:-1], gradients)


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
@pytest.mark.parametrize(
    ("graph", "options", "says"),
    [
        ("golf_tinny", {"device": "host"}, "golf_tiny"),
        ("golf_tiny", {"device": "rocm"}, "host, cuda"),
        ("golf_tiny", {"device": "host", "spec": "h300"}, "h300"),
    ],
)
def test_what_ours_cannot_open_is_refused_with_the_reason(graph, options, says):
    with pytest.raises(ours.Refused, match=says):
        ours.Backward(LIBRARY, graph, **options)


def example_row(name, median, saved_equal=True):
    mode = {
        "gpu_ms": {"median": 2 * median}, "wall_ms": {"median": 3 * median}, "first_step_s": 20.0,
        "kernels": {"count": 30, "idle": 0.05}, "peak_bytes": 4 << 30,
        "saved": {"equal": saved_equal, "captured_bytes": 10, "inductor_bytes": 12},
    }  # fmt: skip
    mine = {
        "gpu_ms": {"median": median}, "wall_ms": {"median": median}, "host_us": {"median": 9.0},
        "kernels": {"count": 20, "idle": 0.01}, "peak_bytes": 2 << 30,
        "errors": {"worst": 0.004}, "unequal_gradients_of_4_runs": 0,
        "cold": {"total_s": 3.0}, "warm": {"total_s": 0.5},
    }  # fmt: skip
    return {
        "key": KEY, "model": name, "status": "measured", "op_by_op_errors": {"worst": 0.006},
        "machine": {"device": "A GPU", "driver": "1.2", "pytorch": "2.11.0"},
        "ours": {"deterministic": mine, "nondeterministic": mine},
        "pytorch": {"eager": mode, "inductor": mode},
    }  # fmt: skip


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


def test_the_summary_of_a_row_is_one_line():
    assert run.summary(example_row("one", 10.0)).count("\n") == 0
    assert "0.500 of" in run.summary(example_row("one", 10.0))
    assert "OTHER SAVED BYTES" in run.summary(example_row("one", 10.0, saved_equal=False))
    assert run.summary(row("three")) == "three: refused: a test"
    assert isinstance(run.path_of("x", pathlib.Path("y")), pathlib.Path)


@pytest.mark.parametrize("name", ablation_models.MODELS)
def test_models_made_for_nothing_are_captured_and_their_gradients_are_right(name, tmp_path):
    from retrograd import bundle
    from retrograd.translate import translate

    result = ablation_models.capture(name + ablation_models.TINY, "cpu")
    graph, constants = translate(result, name)
    path = tmp_path / f"{name}.bwd.pb"
    bundle.write_atomically(path, graph.SerializeToString())
    with ours.Backward(LIBRARY, path, "host", spec="h200") as backward:
        gradients = ours.room_for(result.outputs, torch.device("cpu"))
        backward.bind([*(i.recorded for i in result.inputs), *constants.values()], gradients)
        backward.run()
        references = float64.gradients(result)
        found = float64.errors(gradients, references)
        theirs = float64.errors([o.recorded for o in result.outputs], references)
    # The biases of a mixer's patches have gradients that are mathematically zero: all is rounding
    # there, and the framework's is as large.
    tolerance = 2e-2 if any(i.recorded.dtype == torch.bfloat16 for i in result.inputs) else 1e-5
    assert all(e <= max(tolerance, 4 * t) for e, t in zip(found, theirs))


def test_every_optional_part_is_ablated():
    source = (conftest.ROOT / "fusion/planner/planner.h").read_text()
    table = source[
        source.index("kFeatures[] = {") : source.index("};", source.index("kFeatures[] = {"))
    ]
    features = set(re.findall(r'^    \{"(\w+)"', table, re.M))
    ablated = {n for part in ablation_parts.PARTS.values() for n in part.options.get("disable", [])}
    ablated |= {n for part in ablation_parts.PARTS.values() for n in part.options if part.off}
    # Without fusion nothing is planned together at all; a graph of numbers keeps no partitions.
    assert features - ablated == {"fusion", "kept_partitions"}


def test_the_code_of_each_part_exists():
    for part in ablation_parts.PARTS.values():
        assert bool(part.code) == (ablation_parts.lines_of(part, conftest.ROOT) > 0)


def test_a_definition_ends_where_its_brace_is_closed():
    text = """int Used() { return Wanted(1); }
class Wanted;
struct Holder {
  int Wanted(
      int a) {
    if (a) {
    }
    return Wanted(a);
  }
};
"""
    assert ablation_parts.definition(text.splitlines(), "Wanted")[0] == "  int Wanted("
    assert len(ablation_parts.definition(text.splitlines(), "Wanted")) == 6
    with pytest.raises(LookupError):
        ablation_parts.definition(text.splitlines(), "Absent")


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_the_library_knows_what_an_ablation_switches_off():
    for part in ablation_parts.PARTS.values():
        with ours.Backward(
            LIBRARY, "golf_tiny", "host", runnable=False, **part.options
        ) as backward:
            assert backward.describe()["kernels"] > 0


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_equal_programs_have_one_digest_and_others_another():
    def digest(**options):
        with ours.Backward(LIBRARY, "golf_tiny", "host", runnable=False, **options) as backward:
            return backward.describe()["digest"]

    assert digest() == digest(plan_again=False) == digest(record=False)
    others = [
        digest(disable=["vectorization"]), digest(memory_reuse=False), digest(streams=5), digest(),
    ]  # fmt: skip
    assert len(set(others)) == 4


@pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
def test_an_ablation_measures_what_differs_and_stops_in_time(tmp_path):
    def run_with(budget):
        out = tmp_path / f"{budget}.json"
        subprocess.run(
            [sys.executable, conftest.ROOT / "bench/ablate.py", "--device", "host",
             "--spec", "h200",
             "softmax_tiny", "layer_norm_tiny", "--parts",
             "persistent reductions,matmul epilogues,graph capture",
             "--repeat", "2", "--budget", str(budget), "--library", LIBRARY, "--out", out,
             "--cache", tmp_path / "cache"],
            check=True, capture_output=True,
        )  # fmt: skip
        return {row["model"]: row for row in json.loads(out.read_text())["models"]}

    softmax = run_with(300)["softmax_tiny"]
    assert softmax["whole"]["gpu_ms"]["runs"] == 2
    assert softmax["without"]["matmul epilogues"]["same"]
    assert softmax["without"]["persistent reductions"]["ratio"] > 0
    assert softmax["without"]["graph capture"]["ratio"] > 0


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


def test_a_spec_for_one_tile_lists_it_alone():
    text = (conftest.ROOT / "fusion/devices/h200.textproto").read_text()
    changed = gemm_tiles.spec_with(text, (64, 256), 4)
    assert changed.count("tiles {") == 1
    assert "tiles { rows: 64 columns: 256 cluster: 4 factor: 1 source: " in changed
    assert "product_factor: 1\n" in changed and "pass_share: 0.001\n" in changed


def test_a_tiles_factor_is_its_time_by_wave_and_element_over_the_reference_tiles():
    def timed(m, n, tile, us):
        return {"m": m, "n": n, "k": 512, "tile": tile, "us": us}

    rows = [
        timed(98304, 2048, (128, 128, 2), 100.0),
        timed(98304, 2048, (64, 128, 2), 140.0),  # as many waves of half the elements, twice
        timed(1024, 1024, (128, 128, 2), 10.0),  # 64 tiles on 132 SMs: one wave
        timed(1024, 1024, (64, 128, 2), 7.0),  # one wave of half the elements
        {"m": 512, "n": 512, "k": 512, "tile": (64, 128, 2), "refused": "a test"},
    ]
    found = gemm_tiles.factors(rows, 132)
    assert found[(128, 128, 2)] == 1
    assert found[(64, 128, 2)] == pytest.approx(1.4, rel=0.01)


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


def test_a_loss_curve_begins_as_eagers():
    eager, ours = (curves.train("gpt", side, 0, 2, "cpu") for side in ("eager", "retrograd"))
    assert ours == pytest.approx(eager, rel=1e-3)


def test_distances_of_curves():
    told = curves.told({
        "eager": [[1.0, 2.0], [2.0, 4.0]], "inductor": [[1.0, 2.0], [2.0, 4.0]],
        "retrograd": [[1.5, 2.0], [2.0, 4.5]],
    })  # fmt: skip
    assert told == {"between_seeds": 1.5, "inductor": 0.0, "retrograd": 0.25}
