"""Rows that a forward gathered and saved, where it saved what they were gathered from as well: a graph
network's messages, one row an edge of a table with one row a node. The backward gathers them again inside
the kernel that wants them, and the saved copy, which is larger, is not read."""

import torch

from retrograd import aten_table

_GATHERS = (torch.ops.aten.index.Tensor, torch.ops.aten.index_select.default)
_CASTS = (torch.ops.prims.convert_element_type.default, torch.ops.aten._to_copy.default)


def gather_again(backward, forward):
    """In the fx graph `backward`, gathers saved rows as the fx graph `forward` does, where the table and
    the index are saved, too, the table is no larger than the rows, and all that reads them is pointwise:
    a library's product would want them in memory. Their placeholders stay, unread."""
    made = {node.name: node for node in forward.nodes}
    placeholders = [n for n in backward.nodes if n.op == "placeholder"]
    first = next(n for n in backward.nodes if n.op != "placeholder")
    copies = {made[p.name]: p for p in placeholders if p.name in made}
    for placeholder in placeholders:
        gather = made.get(placeholder.name)
        if gather is None or not _is_gather(gather) or not _reads_are_pointwise(placeholder):
            continue
        saved = {n: p for n, p in copies.items() if n is not gather}
        views = _views_behind(gather, saved)
        if views is None or _bytes(gather.all_input_nodes[0]) > _bytes(gather):
            continue
        again = dict(saved)
        with backward.inserting_before(first):
            for node in forward.nodes:
                if node in views:
                    again[node] = backward.node_copy(node, again.__getitem__)
        placeholder.replace_all_uses_with(again[gather])


def _is_gather(node):
    """Whether it takes whole rows of a tensor by one tensor of integers."""
    if node.op != "call_function" or node.target not in _GATHERS:
        return False
    if node.target is torch.ops.aten.index_select.default:
        return True
    indices = [i for i in node.args[1] if i is not None]
    return len(indices) == 1 and not indices[0].meta["val"].dtype == torch.bool


def _views_behind(gather, saved):
    """The gather and the views between it and what is saved; None where it is made of anything else."""
    found, waiting = {gather}, list(gather.all_input_nodes)
    while waiting:
        node = waiting.pop()
        if node in found or node in saved:
            continue
        if not _is_view(node):
            return None
        found.add(node)
        waiting += node.all_input_nodes
    return found


def _is_view(node):
    if node.op != "call_function" or aten_table.lookup(str(node.target)) is None:
        return False
    returned = getattr(getattr(node.target, "_schema", None), "returns", [])
    return len(returned) == 1 and returned[0].alias_info is not None


def _reads_are_pointwise(node):
    """Whether pointwise ops alone read the values, behind views and casts."""
    return all(
        torch.Tag.pointwise in getattr(user.target, "tags", ())
        or ((_is_view(user) or user.target in _CASTS) and _reads_are_pointwise(user))
        for user in node.users
    )


def _bytes(node):
    """Of the tensor, for the sizes that were captured."""
    value = node.meta["val"]
    hint = getattr(value.numel(), "node", None)
    elements = value.numel() if hint is None else hint.hint
    return elements * value.element_size()
