"""The backward graph as Inductor's compiler is handed it, as a capture.CapturedBackward."""

import copy
import math

import torch
from torch._inductor.fx_passes.post_grad import view_to_reshape

from retrograd import capture, known_values, origins, schema, translate
from retrograd.backend.propagation import propagate_strides
from retrograd.errors import ExportError
from retrograd.sizes.symbolic import LYING

# Bytes that divide an input's address, at most: the widest access of a GPU.
ALIGNMENT = 16


def input_names(module):
    """The names of a Dynamo graph's inputs, in order: "fc.weight" for a parameter."""
    names = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            source = getattr(node.meta.get("grapharg"), "source", None)
            name = getattr(source, "name", None)
            name = name() if callable(name) else name
            names.append(origins.strip_prefix(name) if isinstance(name, str) else node.target)
    return names


def arrived_backward(
    module, example_inputs, names, owned=False, sizes=None, donated=None, decided=None
):
    """(CapturedBackward, torch.device) of a backward graph, which stays as it is unless it is owned.

    example_inputs: fake tensors in the strides that runs will have. names: of the forward's inputs.
    sizes: the SizeTable of what the graph's nodes know of symbols. donated: the numbers of the inputs
    that nobody has but the backward; None: as AOTAutograd says. decided: known_values.decided_part() of
    the forward, whose values the backward makes itself.
    ExportError, saying why, for what has no counterpart.
    """
    device = _device_of(example_inputs)
    placeholders = _placeholders(module.graph)
    for node, example in zip(placeholders, example_inputs, strict=True):
        _check_input(node, example, device)
    (returned,) = [n for n in module.graph.nodes if n.op == "output"]
    ours = propagated(module, example_inputs, owned)
    if decided is not None:
        known_values.compute_again(ours.graph, decided, certain=True)
    (results,) = [n for n in ours.graph.nodes if n.op == "output"]
    donated = _donated() if donated is None else donated
    inputs = [
        _input(node, example, names, i in donated)
        for i, (node, example) in enumerate(
            zip(_placeholders(ours.graph), example_inputs, strict=True)
        )
    ]
    capture.make_unique(inputs)
    descriptions = returned.meta.get("desc") or [None] * len(returned.args[0])
    outputs = [
        _output(before, now, description, names)
        for before, now, description in zip(
            returned.args[0], results.args[0], descriptions, strict=True
        )
    ]
    captured = capture.CapturedBackward(ours.graph, inputs, outputs, capture.numerics(), sizes)
    return captured, device


def _donated():
    """The numbers of the inputs that nobody has but the backward: their memory is free behind their
    last use, unless the graph is kept."""
    metadata = getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)
    return set(getattr(metadata, "bw_donated_idxs", None) or ())


def _placeholders(graph):
    return [n for n in graph.nodes if n.op == "placeholder"]


def _device_of(example_inputs):
    devices = {t.device for t in example_inputs if isinstance(t, torch.Tensor) and t.dim() > 0}
    devices = devices or {t.device for t in example_inputs if isinstance(t, torch.Tensor)}
    if len(devices) != 1:
        found = ", ".join(sorted(map(str, devices))) or "none"
        raise ExportError(f"the backward's tensors are on {found}; one device is needed")
    (device,) = devices
    if device.type not in ("cpu", "cuda"):
        raise ExportError(f"the backward is on {device}; cpu and cuda are supported")
    return device


def _check_input(node, example, device):
    if isinstance(example, (int, torch.SymInt)):
        raise ExportError(
            f"input {node.name} of the backward is a size: dynamic shapes are not supported"
        )
    if isinstance(example, torch.Generator):
        raise ExportError(
            f"input {node.name} of the backward is a generator: what a checkpointed block draws "
            "again, such as dropout's mask, is drawn by PyTorch; leave dropout outside of the block, "
            "or set it to 0"
        )
    if not isinstance(example, torch.Tensor):
        raise ExportError(
            f"input {node.name} of the backward is a {type(example).__name__}, not a tensor"
        )
    if any(isinstance(n, torch.SymInt) for n in (*example.shape, *example.stride())):
        raise ExportError(
            f"input {node.name} of the backward has the shape {list(example.shape)}: dynamic "
            "shapes are not supported"
        )
    if example.device != device:
        raise ExportError(
            f"input {node.name} of the backward is on {example.device}, others on {device}; one "
            "device is needed"
        )


def propagated(module, example_inputs, owned):
    """The graph, or a copy, whose nodes have the strides that follow from the inputs' own."""
    ours = module if owned else torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    view_to_reshape(ours)
    propagate_strides(ours, example_inputs)
    return ours


def _dtype(node, example):
    """The placeholder's dtype in runs. PyTorch predicts fp32 for the log-sum-exp of CPU attention in
    fp64, which is fp64."""
    for user in node.users:
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        if user.target is flash and user.args[5] is node:
            query = user.args[1].meta["val"].dtype
            return torch.promote_types(query, torch.float32)
    return example.dtype


def _alignment(example):
    """A promise to the planner, in bytes; a run copies what does not keep it. A view lies as far behind
    its base, whose memory PyTorch aligns, as in the trace. Numbers may be read by libraries and by the
    copy engine, which want ALIGNMENT; indices and masks are not."""
    offset = example.storage_offset()
    numbers = example.is_floating_point() or example.is_complex()
    if numbers or not isinstance(offset, int):
        return ALIGNMENT
    return math.gcd(ALIGNMENT, offset * example.element_size())


def _input(node, example, names, donated):
    name, kind = str(node.target), schema.SAVED
    index = capture.primal_index(node)
    if name.startswith("tangents_"):
        kind = schema.TANGENT
    elif index is not None:
        kind = schema.PARAMETER
        name = names[index] if index < len(names) else name
    (shape,) = translate.shapes_of(node)
    strides = node.meta.get(LYING, example).stride()
    return capture.CapturedInput(
        node=node, name=name, kind=kind, dtype=_dtype(node, example), shape=shape,
        strides=capture.given_strides(shape, strides), alignment=_alignment(example),
        donated=donated, saved=index is None and kind == schema.SAVED,
    )  # fmt: skip


def _output(before, now, description, names):
    """before: the result as it was handed over, whose strides are the parameter's."""
    index = getattr(getattr(description, "grad_of", None), "idx", None)
    known = index is not None and index < len(names)
    name = names[index] if known else str(getattr(before, "name", "none"))
    if not isinstance(before, torch.fx.Node):
        if before is not None:
            raise ExportError(f"the backward returns {before!r}, which is no tensor")
        return capture.CapturedOutput(None, name)
    value = before.meta["val"]
    if not isinstance(value, torch.Tensor):
        raise ExportError(f"the backward returns {before.name}, a {type(value).__name__}")
    (shape,) = translate.shapes_of(before)
    strides = capture.result_strides(shape, before.meta.get(LYING, value).stride())
    return capture.CapturedOutput(now, name, value.dtype, strides)
