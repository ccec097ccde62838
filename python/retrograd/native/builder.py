"""Graphs made by hand, node by node.

    b = Builder("scale")
    dy = b.input("dy", "f32", (8, 4), kind="tangent")
    w = b.input("w", "f32", (4,), kind="parameter")
    b.output(b.add("mul", dy, w), "x")
    graph = b.finish()
"""

import ctypes
import dataclasses

from retrograd.native import structs
from retrograd.native.graph import DTYPES, KINDS, Graph
from retrograd.native.library import Handle, load

_INT, _FLOAT, _STRING, _INTS = 1, 2, 3, 4


@dataclasses.dataclass(frozen=True)
class Value:
    """One result of one node of a builder."""

    node: int
    result: int
    dtype: str
    shape: tuple


def _number(names, name, what):
    if name not in names:
        raise ValueError(f"{what} {name!r}: must be one of {', '.join(names)}")
    return names.index(name) + 1


def _attribute(name, value):
    """The struct, which refers to the value's memory."""
    attribute = structs.Attribute(name=name.encode())
    if isinstance(value, (bool, int)):
        attribute.kind, attribute.int_value = _INT, int(value)
    elif isinstance(value, float):
        attribute.kind, attribute.float_value = _FLOAT, value
    elif isinstance(value, str):
        attribute.kind, attribute.string_value = _STRING, value.encode()
    else:
        numbers = (ctypes.c_int64 * max(len(value), 1))(*value)
        attribute.kind, attribute.ints, attribute.num_ints = _INTS, numbers, len(value)
    return attribute


class Builder(Handle):
    """Serves one thread. A call that fails raises, and the builder is worth nothing afterwards."""

    def __init__(self, name, library=None):
        loaded = load(library)
        super().__init__(loaded, loaded.made("builder_create", name.encode()), "builder_destroy")

    def input(self, name, dtype, shape, kind="saved", strides=(), alignment=0):
        """Adds an input. strides: in elements; empty: row-major. alignment: bytes that divide its
        address; 0: those of one element."""
        if len(shape) > structs.MAX_RANK or len(strides) not in (0, len(shape)):
            raise ValueError(
                f"input {name!r}: at most {structs.MAX_RANK} dims, and as many strides or none; "
                f"shape {tuple(shape)}, strides {tuple(strides)}"
            )
        tensor = structs.Tensor(
            name=name.encode(), rank=len(shape), alignment=alignment,
            dtype=_number(DTYPES, dtype, "dtype"), kind=_number(KINDS, kind, "kind"),
        )  # fmt: skip
        tensor.shape[: len(shape)] = shape
        tensor.strides[: len(strides)] = strides
        made = structs.Value()
        self.library.check(
            self.library.builder_input(self.handle, ctypes.byref(tensor), ctypes.byref(made))
        )
        return self._value(made)

    def add(self, op, *operands, **attributes):
        """Adds a node: an op by its name (docs/ops.md), its operands, its attributes. Returns its
        first result; `nth` gives the others."""
        given = (structs.Value * max(len(operands), 1))(
            *(structs.Value(v.node, v.result) for v in operands)
        )
        named = [_attribute(name, value) for name, value in attributes.items()]
        table = (structs.Attribute * max(len(named), 1))(*named)
        made = structs.Value()
        code = self.library.builder_add(
            self.handle, op.encode(), given, len(operands), table, len(named), ctypes.byref(made)
        )
        self.library.check(code)
        return self._value(made)

    def nth(self, first, result):
        """Another result of the node that gave `first`."""
        return self._value(structs.Value(first.node, result))

    def scalar(self, value, dtype):
        """A constant of rank 0, which broadcasts."""
        return self.add("full", value=float(value), dtype=dtype, shape=())

    def output(self, value, name, strides=()):
        """Adds an output. strides: in elements; empty: row-major."""
        if len(strides) not in (0, len(value.shape)):
            raise ValueError(
                f"output {name!r}: strides {tuple(strides)} for shape {value.shape}"
            )  # fmt: skip
        wanted = (ctypes.c_int64 * len(strides))(*strides) if strides else None
        self.library.check(
            self.library.builder_output(
                self.handle, structs.Value(value.node, value.result), name.encode(), wanted
            )
        )

    def finish(self):
        """The Graph. The builder is closed."""
        graph = Graph(self.library, self.library.made("builder_finish", self.handle))
        self.close()
        return graph

    def _value(self, made):
        tensor = structs.Tensor()
        self.library.check(self.library.builder_type(self.handle, made, ctypes.byref(tensor)))
        return Value(
            made.node, made.result, DTYPES[tensor.dtype - 1], tuple(tensor.shape[: tensor.rank])
        )
