"""Indices that are the same at every place but along some axes, as an expanded list is: what they
name are whole rows."""

import math

from retrograd.builder import Ref
from retrograd.dtypes import torch_dtype


def line_of(b, index, axis):
    """The list [n] that the index [.., n, ..] repeats along every axis but `axis`; None if it is no
    such index, as far as its node tells."""
    node = b.graph.nodes[index.node]
    others = [a for a in range(index.rank) if a != axis]
    if all(index.shape[a] == 1 for a in others):
        return b.reshape(index, (index.shape[axis],))
    if not math.prod(index.shape):
        return None
    if node.op == "cast":
        line = line_of(b, operand_of(b, node), axis)
        return None if line is None else b.cast(line, index.dtype)
    if node.op == "input":
        strides = list(node.input.strides)
        if not strides or any(strides[a] for a in others if index.shape[a] > 1):
            return None
        return _cut(b, index, axis)
    if node.op != "expand":
        return None
    source = b.graph.nodes[node.operands[0].node].results[node.operands[0].result].dims
    source = [1] * (index.rank - len(source)) + list(source)
    if any(source[a] != 1 for a in others) or source[axis] != index.shape[axis]:
        return None
    return b.reshape(operand_of(b, node), (index.shape[axis],))


def lists_of(b, index, axis):
    """The lists [.., n] that the index [.., n, ..] repeats along every axis behind `axis`; None if
    it is no such index, as far as its node tells."""
    node = b.graph.nodes[index.node]
    behind = range(axis + 1, index.rank)
    if not all(isinstance(n, int) for n in index.shape) or not math.prod(index.shape):
        return None
    if node.op == "cast":
        lists = lists_of(b, operand_of(b, node), axis)
        return None if lists is None else b.cast(lists, index.dtype)
    if node.op == "expand":
        source = operand_of(b, node)
        extents = [1] * (index.rank - source.rank) + list(source.shape)
        if any(extents[a] != 1 for a in behind) or extents[: axis + 1] != list(
            index.shape[: axis + 1]
        ):
            return None
        return b.reshape(source, index.shape[: axis + 1])
    strides = list(node.input.strides) if node.op == "input" else []
    if not strides or any(strides[a] for a in behind if index.shape[a] > 1):
        return None
    for a in behind:
        index = b.slice(index, a, 0, 1)
    return b.reshape(index, index.shape[: axis + 1])


def operand_of(b, node):
    """The node's first operand."""
    operand = node.operands[0]
    result = b.graph.nodes[operand.node].results[operand.result]
    return Ref(operand.node, operand.result, torch_dtype(result.dtype), tuple(result.dims))


def _cut(b, index, axis):
    """Its first element along every axis but one."""
    for a in range(index.rank):
        if a != axis:
            index = b.slice(index, a, 0, 1)
    return b.reshape(index, (index.shape[axis],))
