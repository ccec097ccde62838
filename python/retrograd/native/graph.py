"""Graphs: loaded, parsed, printed, saved."""

import ctypes
import dataclasses
import functools
import os

from retrograd.native import structs
from retrograd.native.library import Failure, Handle, load

# By number, from 1 on: rg_dtype and rg_input_kind.
DTYPES = ("bool", "i8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2")
KINDS = ("saved", "parameter", "tangent", "constant")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or output of a graph."""

    name: str
    dtype: str  # of DTYPES
    shape: tuple
    strides: tuple  # in elements
    kind: str  # of KINDS; of inputs
    alignment: int  # bytes that divide an input's address; 0: those of one element
    bytes: int  # from the first element to the end of the last
    present: bool  # False: an output that nobody computes

    @staticmethod
    def of(t):
        return Tensor(
            name=t.name.decode(),
            dtype=DTYPES[t.dtype - 1],
            shape=tuple(t.shape[: t.rank]),
            strides=tuple(t.strides[: t.rank]),
            kind=KINDS[t.kind - 1] if t.kind else "saved",
            alignment=t.alignment,
            bytes=t.bytes,
            present=bool(t.present),
        )


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A size that a graph leaves open: from `min` to `max`, a multiple of `multiple_of`. `hint`: the value
    for which the graph's shapes and strides stand."""

    name: str
    min: int
    max: int
    multiple_of: int
    hint: int


class Graph(Handle):
    """A legal graph. It may be read by several threads at once."""

    def __init__(self, library, handle):
        super().__init__(library, handle, "graph_destroy")

    @classmethod
    def load(cls, path, library=None):
        """Of a graph.proto file, or of the text form where `path` ends in .rgt."""
        library = load(library)
        return cls(library, library.made("graph_load", os.fsencode(path)))

    @classmethod
    def parse(cls, text, library=None):
        """Of the text form (docs/format.md)."""
        library, encoded = load(library), text.encode()
        return cls(library, library.made("graph_parse", encoded, len(encoded)))

    @classmethod
    def deserialize(cls, data, library=None):
        """Of the bytes of a retrograd.v1.Graph."""
        library = load(library)
        return cls(library, library.made("graph_deserialize", bytes(data), len(data)))

    @property
    def symbols(self):
        """A Symbol for each size that the graph leaves open; none where it has numbers alone."""
        symbols = []
        for i in range(self.library.graph_num_symbols(self.handle)):
            symbol = structs.Symbol()
            self.library.check(self.library.graph_symbol(self.handle, i, ctypes.byref(symbol)))
            symbols.append(
                Symbol(
                    symbol.name.decode(), symbol.min, symbol.max, symbol.multiple_of, symbol.hint
                )
            )
        return symbols

    def bind(self, sizes):
        """The Graph of numbers for these sizes: a dict that has a value for each symbol's name.

        Failure where one is missing, unknown or out of its range, and RG_FAILED_PRECONDITION where the
        graph was not made for these sizes.
        """
        for name, value in sizes.items():
            if not -(2**63) <= value < 2**63:
                raise Failure(
                    "RG_INVALID_ARGUMENT", f"{name} is {value}, which is no 64-bit integer"
                )
        bindings = (structs.Binding * len(sizes))(
            *(structs.Binding(name.encode(), value) for name, value in sizes.items())
        )
        made = self.library.made("graph_bind", self.handle, bindings, len(sizes))
        return Graph(self.library, made)

    def save(self, path):
        """The text form where `path` ends in .rgt, else graph.proto: all of the file or nothing."""
        self.library.check(self.library.graph_save(self.handle, os.fsencode(path)))

    def serialize(self):
        """The bytes of a retrograd.v1.Graph. Equal graphs give equal bytes."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        code = self.library.graph_serialize(self.handle, ctypes.byref(data), ctypes.byref(size))
        self.library.check(code)
        try:
            return ctypes.string_at(data, size.value)
        finally:
            self.library.free(data)

    def __str__(self):
        return self.library.text("graph_print", self.handle)

    @functools.cached_property
    def inputs(self):
        """A Tensor for each, in the order in which runs take addresses."""
        return self._all(self.library.graph_num_inputs, self.library.graph_input)

    @functools.cached_property
    def outputs(self):
        """A Tensor for each, in the order in which runs take addresses."""
        return self._all(self.library.graph_num_outputs, self.library.graph_output)

    def _all(self, count, read):
        tensors = []
        for i in range(count(self.handle)):
            tensor = structs.Tensor()
            self.library.check(read(self.handle, i, ctypes.byref(tensor)))
            tensors.append(Tensor.of(tensor))
        return tensors
