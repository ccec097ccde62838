"""Which extents of a call's arguments vary, and what their sizes are called."""

import contextlib
import copy
import dataclasses

import torch
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from retrograd.errors import ExportError


@dataclasses.dataclass(frozen=True)
class Mark:
    """An extent that varies."""

    tensor: torch.Tensor
    dim: int
    name: str
    min: int | None
    max: int | None


def marks_of(dynamic_shapes, names):
    """The Marks of export_backward's dynamic_shapes. names: the names.TensorNames of the call.
    ExportError for what names no extent."""
    arguments = names.arguments()
    marks = []
    for argument, dims in dynamic_shapes.items():
        if argument not in arguments:
            raise ExportError(
                f"dynamic_shapes names {argument}, which is no tensor among the arguments; those are "
                f"{', '.join(arguments) or 'none'}"
            )
        for dim, size in (dims or {}).items():
            marks.append(_mark(arguments[argument], argument, dim, size))
    extents = {}
    for mark in marks:
        extent = mark.tensor.shape[mark.dim]
        if extents.setdefault(mark.name, extent) != extent:
            raise ExportError(
                f"the size {mark.name} is {extents[mark.name]} and {extent} in dynamic_shapes: sizes "
                "of one name are equal"
            )
    return marks


def _mark(tensor, argument, dim, size):
    if not -tensor.dim() <= dim < tensor.dim():
        raise ExportError(f"dynamic_shapes: {argument} has no dim {dim}, it has {tensor.dim()}")
    name = size if isinstance(size, str) else getattr(size, "__name__", None)
    if not name or any(c in name for c in "=, ") or not name.isprintable():
        raise ExportError(
            f"dynamic_shapes: dim {dim} of {argument} is to be called {size!r}; give a name without "
            "commas, spaces and equals signs, or a torch.export.Dim"
        )
    return Mark(tensor, dim % tensor.dim(), name, getattr(size, "min", None), getattr(size, "max", None))


@contextlib.contextmanager
def marked(marks):
    """The tensors as torch._dynamo.mark_dynamic marks them, and each extent a symbol of its own, equal
    ones too. ExportError where the model does not let an extent vary."""
    # PyTorch adds to the sets that a marked tensor has.
    before = [
        (mark.tensor, {name: copy.copy(value) for name, value in mark.tensor.__dict__.items()})
        for mark in marks
    ]
    try:
        for mark in marks:
            torch._dynamo.mark_dynamic(mark.tensor, mark.dim, min=mark.min, max=mark.max)
        with torch.fx.experimental._config.patch(use_duck_shape=False):
            yield
    except (torch._dynamo.exc.UserError, ConstraintViolationError) as error:
        raise ExportError(f"a size cannot vary: {error}") from error
    finally:
        for tensor, attributes in reversed(before):
            for name in tensor.__dict__.keys() - attributes.keys():
                delattr(tensor, name)
            tensor.__dict__.update(attributes)


def names_of_symbols(module, example_inputs, names, marks):
    """{PyTorch's name of a symbol: what it is called in the graph} for a Dynamo graph: the mark's name, or
    that of the argument with the dim."""
    given = {(id(mark.tensor), mark.dim): mark.name for mark in marks}
    found = {}
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node, example in zip(placeholders, example_inputs, strict=True):
        value = node.meta.get("example_value")
        if not isinstance(value, torch.Tensor):
            continue
        for dim, extent in enumerate(value.shape):
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_Symbol:
                name = given.get((id(example), dim))
                own = f"{names.of(example, node.name)[0]}_{dim}"
                own = "".join(c if c.isalnum() or c in "._" else "_" for c in own)
                symbol = str(extent.node.expr)
                if name or symbol not in found:
                    others = {*given.values(), *(n for s, n in found.items() if s != symbol)}
                    while not name and own in others:
                        own += "_"
                    found[symbol] = name or own
    return found
