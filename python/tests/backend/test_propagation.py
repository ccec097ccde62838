"""Strides of a graph's values where inputs lie otherwise than in the trace, against a run of all nodes."""

import copy

import pytest
import torch
from retrograd.backend.propagation import propagate_strides
from torch._inductor.compile_fx import fake_tensor_prop
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

A, B = (4, 6, 8), (4, 8, 6)


def _pointwise(a, b):
    return a.exp() + b.transpose(1, 2), b * 2


def _products(a, b):
    return torch.bmm(a, b).sum(0), (a.reshape(24, 8) @ b.reshape(8, 24)).relu()


def _parts(a, b):
    first, second = torch.split(a, 4, dim=2)
    return first * second, torch.sort(b, dim=1)[0]


def _layouts(a, b):
    return a.clone(), torch.empty_like(a), b.clone(memory_format=torch.contiguous_format) + 1


def _attention(a, b):
    q, k = a.reshape(1, 4, 6, 8), b.transpose(1, 2).reshape(1, 4, 6, 8)
    return F.scaled_dot_product_attention(q, k, k)


FUNCTIONS = (_pointwise, _products, _parts, _layouts, _attention)
MOVED = {
    "neither": lambda a, b: (a, b),
    "first": lambda a, b: (a.transpose(0, 1).contiguous().transpose(0, 1), b),
    "second": lambda a, b: (a, b.transpose(1, 2).contiguous().transpose(1, 2)),
}


def _values(graph):
    def told(value):
        if isinstance(value, torch.Tensor):
            return value.shape, value.dtype, value.stride()
        return tuple(map(told, value)) if isinstance(value, (tuple, list)) else value

    return {n.name: told(n.meta["val"]) for n in graph.nodes if "val" in n.meta and n.op != "output"}


def _traced(function, mode):
    with mode:
        inputs = torch.empty(A), torch.empty(B)
    module = make_fx(function)(*inputs)
    view_to_reshape(module)  # what was a view may need a copy
    return module, inputs


@pytest.mark.parametrize("moved", MOVED)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_are_those_of_a_run_of_all_nodes(function, moved):
    mode = FakeTensorMode()
    module, inputs = _traced(function, mode)
    with mode:
        inputs = MOVED[moved](*inputs)
    wanted = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    fake_tensor_prop(wanted, inputs)
    propagate_strides(module, inputs)
    assert _values(module.graph) == _values(wanted.graph)


def test_only_what_reads_a_moved_value_runs():
    mode = FakeTensorMode()
    module, (a, b) = _traced(lambda a, b: (a.exp().sum(), b.sin().cos()), mode)
    before = {n.name: n.meta["val"] for n in module.graph.nodes if "val" in n.meta}
    with mode:
        b = b.transpose(1, 2).contiguous().transpose(1, 2)
    propagate_strides(module, (a, b))
    after = {n.name: n.meta["val"] for n in module.graph.nodes if "val" in n.meta}
    ran = {name for name in before if before[name] is not after[name]}
    assert ran == {"b_1", "sin", "cos"}


def test_values_of_another_mode_have_all_nodes_run():
    module, _ = _traced(_pointwise, FakeTensorMode())
    with FakeTensorMode():
        inputs = torch.empty(A).transpose(0, 1).contiguous().transpose(0, 1), torch.empty(B)
    wanted = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    fake_tensor_prop(wanted, inputs)
    propagate_strides(module, inputs)
    assert _values(module.graph) == _values(wanted.graph)
