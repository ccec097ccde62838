"""Where an fx node came from: the framework's op, the module and the line of the forward pass."""

import os
import re

import torch

from retrograd import schema
from retrograd.errors import ExportError

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
# Frames inside PyTorch and this package say nothing about the model.
_NOT_THE_MODEL = tuple(
    os.path.join(os.path.dirname(os.path.abspath(file)), "") for file in (torch.__file__, __file__)
)
MAX_BYTES = 200

_KNOWN = "retrograd_origin"  # in a node's meta


def display(text):
    """`text` as the schema takes display strings: no control characters, at most 200 bytes."""
    text = "".join(c if c.isprintable() else "?" for c in str(text))
    while len(text.encode()) > MAX_BYTES:
        text = text[:-1]
    return text


def source_line(node):
    """The innermost frame of the model's own code as "file.py:123", or ""."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith(_NOT_THE_MODEL)]
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""


def module_path(node):
    """The innermost module around the node's forward op as "blocks.0.attn.q", or ""."""
    for key in ("fwd_nn_module_stack", "nn_module_stack"):
        stack = node.meta.get(key)
        if stack:
            path = list(stack.values())[-1][0]
            return strip_prefix(path)
    return ""


def strip_prefix(path):
    """The module's path without the name that Dynamo gave its root: L['model'].a.b -> a.b."""
    path = re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", path)  # L['self'] -> L.self, blocks[0] -> .0
    path = re.sub(r"\._modules\b|\._buffers\b|\._parameters\b", "", path)
    parts = path.split(".")
    if parts and parts[0] in ("L", "G"):
        parts = parts[2:]
    return ".".join(parts)


def original_op(node):
    """The op before decomposition as "aten.native_layer_norm_backward"; else the node's own."""
    op = node.meta.get("original_aten") or node.target
    return str(getattr(op, "overloadpacket", op))


def origin_of(node):
    """The schema.Origin of an fx node, or None if nothing is known."""
    if _KNOWN in node.meta:
        return node.meta[_KNOWN]
    if not node.meta.get("original_aten") and not node.meta.get("stack_trace"):
        return None
    return schema.Origin(
        op=display(original_op(node)),
        instance=max(int(node.meta.get("seq_nr", 0)), 0),
        module_path=display(module_path(node)),
        source=display(source_line(node)),
        recomputed=node.meta.get("partitioner_tag") == "is_forward",
    )


def find_once(graph):
    """Finds the origin of each node, for copies of the graph whose nodes keep its meta."""
    for node in graph.nodes:
        node.meta[_KNOWN] = origin_of(node)


def renumber(origins):
    """Numbers the instances of a graph's origins from 0, in autograd's order: its own numbers
    count what the process did before."""
    numbers = {n: i for i, n in enumerate(sorted({o.instance for o in origins}))}
    for origin in origins:
        origin.instance = numbers[origin.instance]


def refusal(node, reason):
    """An ExportError that names the op, the node and the line of the model."""
    line = source_line(node) or "an unknown line"
    module = module_path(node)
    where = f" in module {module}" if module else ""
    return ExportError(
        f"cannot export {node.target} (node {node.name}, from {original_op(node)} at {line}{where}): "
        f"{reason}",
        node.name,
    )
