"""The strides of a traced graph's values, for inputs that lie otherwise than in the trace."""

import torch
from torch._inductor.compile_fx import fake_tensor_prop
from torch._subclasses.fake_tensor import unset_fake_temporarily


def propagate_strides(module, example_inputs):
    """Gives the nodes of the graph the values ("val" of their meta) that follow from the inputs.

    example_inputs: fake tensors of one mode. A node runs only if an operand of it lies otherwise than
    in the trace: to run all of them takes longer than what else is done with the graph.
    """
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    moved = {
        node: example
        for node, example in zip(placeholders, example_inputs, strict=True)
        if not lies_alike(node.meta.get("val"), example)
    }
    if not moved:
        return
    for node, example in moved.items():
        node.meta["val"] = example
    mode = torch._guards.detect_fake_mode(example_inputs)
    if mode is None or not _can_run_some(module.graph, moved, mode):
        fake_tensor_prop(module, example_inputs)
        return
    with unset_fake_temporarily(), mode:
        _run_behind(module.graph, set(moved))


def lies_alike(traced, value):
    """Whether the values are of one shape, dtype and strides."""
    return (
        type(traced) is type(value)
        and traced.shape == value.shape
        and traced.dtype == value.dtype
        and traced.stride() == value.stride()
    )


def _can_run_some(graph, moved, mode):
    """Whether every node behind those that moved is a call whose operands' values are known, in the
    mode."""
    behind = set(moved)
    for node in graph.nodes:
        if node.op == "output" or behind.isdisjoint(node.all_input_nodes):
            continue
        if node.op != "call_function" or not all(_known(n, mode) for n in node.all_input_nodes):
            return False
        behind.add(node)
    return True


def _known(node, mode):
    return "val" in node.meta and all(
        value.fake_mode is mode
        for value in torch.utils._pytree.tree_leaves(node.meta["val"])
        if isinstance(value, torch._subclasses.FakeTensor)
    )


def _run_behind(graph, moved):
    """Runs the nodes that read what has moved; those whose result lies elsewhere have moved, too."""
    for node in graph.nodes:
        if node.op == "output" or moved.isdisjoint(node.all_input_nodes):
            continue
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        value = node.target(*args, **kwargs)
        if not _all_alike(node.meta.get("val"), value):
            moved.add(node)
        node.meta["val"] = value


def _all_alike(traced, value):
    if isinstance(value, torch.Tensor):
        return isinstance(traced, torch.Tensor) and lies_alike(traced, value)
    if isinstance(value, (tuple, list)):
        same = isinstance(traced, (tuple, list)) and len(traced) == len(value)
        return same and all(map(_all_alike, traced, value))
    return traced == value
