"""The graphs of models/graphs compute the gradients that PyTorch recorded beside them."""

import conftest
import interpreter
import pytest
import torch
from retrograd import dtypes, schema

GRAPHS = sorted((conftest.ROOT / "models" / "graphs").glob("*.bwd.pb"))


def bundle_of(path):
    return path.with_name(path.name.replace(".bwd.pb", ".safetensors"))


WITH_BUNDLE = [p for p in GRAPHS if bundle_of(p).exists()]


def name(path):
    return path.name.removesuffix(".bwd.pb")


@pytest.mark.parametrize("path", WITH_BUNDLE, ids=name)
def test_a_captured_graph_computes_its_gradients(path):
    graph, outputs, gradients = interpreter.evaluate_file(path, bundle_of(path))
    types = {dtypes.torch_dtype(r.dtype) for n in graph.nodes for r in n.results}
    tolerance = 2e-2 if types & {torch.bfloat16, torch.float16} else 1e-5
    errors = interpreter.errors(outputs, gradients)
    worst = max(errors, key=errors.get)
    assert errors[worst] <= tolerance, graph.outputs[worst].name


@pytest.mark.parametrize("path", GRAPHS, ids=name)
def test_a_captured_graph_says_what_it_is(path):
    graph = schema.load(path)
    assert graph.name == name(path)
    assert graph.numerics.framework.startswith("torch 2.11")
    assert sum(n.op == "matmul" for n in graph.nodes) >= 18
    assert any(o.module_path for o in graph.origins)


def test_the_captured_graphs_stay_small():
    assert sum(p.stat().st_size for p in (conftest.ROOT / "models" / "graphs").iterdir()) < 14 << 20
