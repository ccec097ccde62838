"""Indices that a sort or a choice of the largest gave: along the axis that was sorted no two of a
line are the same, so what is put at them needs no count of what else is."""

import operator

import torch

_KEY = "retrograd_distinct_along"  # in a placeholder's meta: the axis

# Sorts, and the place of the axis among their arguments; None: it is given by its name alone.
_SORTS = {
    torch.ops.aten.sort.default: 1,
    torch.ops.aten.sort.stable: None,
    torch.ops.aten.topk.default: 2,
    torch.ops.aten.argsort.default: 1,
    torch.ops.aten.argsort.stable: None,
}


def axes_of(forward):
    """{name of a node of the fx graph `forward`: the axis along which its integers differ}."""
    return {n.name: axis for n in forward.nodes if (axis := _axis(n)) is not None}


def mark(backward, axes):
    """Notes at the placeholders of the fx graph `backward` what axes_of() told of its forward."""
    for node in backward.nodes:
        if node.op == "placeholder" and node.name in axes:
            node.meta[_KEY] = axes[node.name]


def marked(placeholder):
    """The axis along which a placeholder's integers differ; None: nothing is known."""
    return placeholder.meta.get(_KEY)


def _axis(node):
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    sort = node
    if node.target is operator.getitem:
        sort = node.args[0]
        if node.args[1] != 1:
            return None
    if not isinstance(sort, torch.fx.Node) or sort.target not in _SORTS:
        return None
    place, rank = _SORTS[sort.target], node.meta["val"].dim()
    axis = sort.kwargs.get("dim", -1)
    if place is not None and len(sort.args) > place:
        axis = sort.args[place]
    return axis % rank if rank and isinstance(axis, int) else None
