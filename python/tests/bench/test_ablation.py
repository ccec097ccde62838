"""bench/ablate.py: its models, its parts, and what it measures without a GPU."""

import json
import re
import subprocess
import sys

import captured_errors
import conftest
import pytest
from built_library import LIBRARY, needs_library
from measure import ablation_parts, ours
from tables import three_parts_table
from workloads import ablation_models, sized_graphs


@pytest.mark.parametrize("name", ablation_models.MODELS)
def test_models_made_for_nothing_are_captured_and_their_gradients_are_right(name, tmp_path):
    result = ablation_models.capture(name + ablation_models.TINY, "cpu")
    path = tmp_path / f"{name}.bwd.pb"
    found, theirs = captured_errors.of_ours_and_pytorch(result, LIBRARY, path)
    # The biases of a mixer's patches have gradients that are mathematically zero: all is rounding
    # there, and the framework's is as large.
    tolerance = captured_errors.tolerance(result)
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


@needs_library
def test_the_library_knows_what_an_ablation_switches_off():
    for part in ablation_parts.PARTS.values():
        with ours.Backward(
            LIBRARY, "golf_tiny", "host", runnable=False, **part.options
        ) as backward:
            assert backward.describe()["kernels"] > 0


@needs_library
def test_equal_programs_have_one_digest_and_others_another():
    def digest(**options):
        with ours.Backward(LIBRARY, "golf_tiny", "host", runnable=False, **options) as backward:
            return backward.describe()["digest"]

    assert digest() == digest(plan_again=False) == digest(record=False)
    others = [
        digest(disable=["vectorization"]), digest(memory_reuse=False), digest(streams=5), digest(),
    ]  # fmt: skip
    assert len(set(others)) == 4


@needs_library
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
            check=True,
        )  # fmt: skip
        return {row["model"]: row for row in json.loads(out.read_text())["models"]}

    softmax = run_with(300)["softmax_tiny"]
    assert softmax["whole"]["gpu_ms"]["runs"] == 2
    assert softmax["without"]["matmul epilogues"]["same"]
    assert softmax["without"]["persistent reductions"]["ratio"] > 0
    assert softmax["without"]["graph capture"]["ratio"] > 0


def test_a_sized_graph_is_named_by_its_sizes():
    name = "dynamic:gpt2@batch=4,length=1000"
    assert sized_graphs.knows(name) and not sized_graphs.knows("gpt2")
    assert not sized_graphs.knows("static:gpt2") and not sized_graphs.knows("other:gpt2@batch=4")
    sized = sized_graphs.parse(name)
    assert sized.dynamic and sized.sizes == {"batch": 4, "length": 1000} and sized.path.exists()
    for wrong in ("static:no_such_graph@batch=4", "static:gpt2@batch", "static:gpt2@batch=-1"):
        with pytest.raises(ValueError):
            sized_graphs.parse(wrong)


@needs_library
def test_what_compilers_lose_where_sizes_vary_is_ablated_for_both_kinds(tmp_path):
    out = tmp_path / "predicted.json"
    names = [f"{kind}:gpt2@batch=4,length=700" for kind in sized_graphs.KINDS]
    subprocess.run(
        [sys.executable, conftest.ROOT / "bench/ablate.py", "--device", "host", "--spec", "h200",
         *names, "--parts", ",".join(three_parts_table.PARTS), "--predict",
         "--budget", "600", "--library", LIBRARY, "--out", out, "--cache", tmp_path / "cache"],
        check=True,
    )  # fmt: skip
    result = json.loads(out.read_text())
    static, dynamic = result["models"]
    assert (static["sizes"], dynamic["sizes"]) == sized_graphs.KINDS
    assert 0.9 < dynamic["whole"]["predicted_us"] / static["whole"]["predicted_us"] < 1.1
    for row in (static, dynamic):
        ratios = {part: row["without"][part]["predicted_ratio"] for part in three_parts_table.PARTS}
        # Each can be switched off where sizes vary, too, and what remains does not make up for it.
        assert min(ratios.values()) > 1
        assert max(ratios, key=ratios.get) == three_parts_table.PARTS[-1]
    assert "| gpt2 | dynamic, batch=4, length=700 | " in "\n".join(three_parts_table.lines(result))
