"""What a forward saves though nothing but its shapes decides it: integers, such as places that an image
is resampled at or indices of windows, and tensors full of one number, such as the zeros that a sum over
indices begins with. The backward makes them itself, so that a plan knows them."""

import torch

from retrograd import aten_table
from retrograd.certain_integers import are_certain


def decided_part(forward):
    """An fx graph of what of the fx graph `forward` reads no input, as far as ops with rows make it:
    compute_again() takes it in place of the whole, whose compiler may change it."""
    part, copies = torch.fx.Graph(), {}
    for node in forward.nodes:
        if node.op != "call_function" or not _is_repeatable(node.target):
            continue
        if all(operand in copies for operand in node.all_input_nodes):
            copies[node] = part.node_copy(node, copies.__getitem__)
    return part


def compute_again(backward, forward, certain=False):
    """In the fx graph `backward`, computes saved integers and filled tensors as the fx graph `forward`
    does where that reads no input but sizes that the backward is given, too. Their placeholders stay,
    unread. certain: only what is the same however floats are rounded, since another compiler makes the
    forward."""
    made = {node.name: node for node in forward.nodes}
    first = next(n for n in backward.nodes if n.op != "placeholder")
    sizes = _sizes_of_both(forward, backward)
    copies = dict(sizes)  # node of the forward -> node of the backward
    for placeholder in [n for n in backward.nodes if n.op == "placeholder"]:
        source = made.get(placeholder.name)
        if source is None or source.op == "placeholder":
            continue
        if not _is_integer(source) and source.target is not torch.ops.aten.full.default:
            continue
        ancestors = _ancestors(source, copies)
        if ancestors is None:
            continue
        if certain:
            everything = _ancestors(source, sizes)
            if not are_certain([node for node in forward.nodes if node in everything]):
                continue
        with backward.inserting_before(first):
            for node in forward.nodes:
                if node in ancestors and node not in copies:
                    copies[node] = backward.node_copy(node, copies.__getitem__)
        placeholder.replace_all_uses_with(copies[source])


def _sizes_of_both(forward, backward):
    """{node of the forward: input of the backward} of sizes that are equal."""
    given = {}
    for node in backward.nodes:
        if node.op == "placeholder" and _is_size(node):
            given.setdefault(node.meta["val"].node.expr, node)
    sizes = [node for node in forward.nodes if _is_size(node)]
    return {n: given[n.meta["val"].node.expr] for n in sizes if n.meta["val"].node.expr in given}


def _is_size(node):
    return isinstance(node.meta.get("val"), torch.SymInt)


def _is_integer(node):
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.dtype.is_floating_point


def _ancestors(node, known):
    """The node and all that it is made of but what is known; None where that is not constants, sizes and
    ops with rows."""
    found, waiting = set(), [node]
    while waiting:
        node = waiting.pop()
        if node in found or node in known:
            continue
        if node.op != "call_function" or not (_is_size(node) or _is_repeatable(node.target)):
            return None
        found.add(node)
        waiting += node.all_input_nodes
    return found


def _is_repeatable(target):
    """Whether a second call gives what the first one gave, as a row of the table says."""
    tags = getattr(target, "tags", (torch.Tag.nondeterministic_seeded,))
    random = torch.Tag.nondeterministic_seeded in tags
    return not random and aten_table.lookup(str(target)) is not None
