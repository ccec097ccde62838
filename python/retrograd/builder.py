"""Writes the nodes of a graph: a thin layer over the schema that knows every op's result type.

A `Ref` is one result of one node with its type. The methods are the ops of graph/ir/ops.def that the
exporter needs, each of which does nothing where nothing is to be done (a cast to the same dtype, a
reshape to the same shape), so that the rows of aten_table.py need not check.
"""

import dataclasses
import math

import torch

from retrograd import dtypes, schema, sizes
from retrograd.sizes import table as size_table


@dataclasses.dataclass(frozen=True)
class Ref:
    """One result of one node."""

    node: int
    result: int
    dtype: torch.dtype
    shape: tuple

    @property
    def rank(self):
        return len(self.shape)

    def __hash__(self):
        return hash((self.node, self.result))


class Builder:
    """Builds a schema.Graph node by node; `origin` is stamped on nodes added while it is set.

    Extents and other numbers may be sizes.Size: the graph holds them at their hints, and `places`
    where they stand.
    """

    def __init__(self, name):
        self.graph = schema.Graph(
            schema_major=schema.SCHEMA_MAJOR, schema_minor=schema.SCHEMA_MINOR, name=name
        )
        self.origin = 0  # 1 + index into graph.origins; 0: none
        self._origins = {}
        self._constants = {}
        self.places = []  # (field, owner, part, element, Size or Quotient): as SizeTable.write has it
        self.distinct = {}  # number of an input of integers: the axis along which no two are the same
        self.pool_offsets = {}  # indices of a max pool -> the offsets that they were made from

    def set_origin(self, origin):
        """`origin`: a schema.Origin or None, for the nodes added from here on."""
        if origin is None:
            self.origin = 0
            return
        key = origin.SerializeToString(deterministic=True)
        if key not in self._origins:
            self.graph.origins.append(origin)
            self._origins[key] = len(self.graph.origins)
        self.origin = self._origins[key]

    def node(self, op, operands, results, **attrs):
        """Adds a node. `results`: (dtype, shape) pairs. Returns one Ref a result."""
        node = self.graph.nodes.add(id=len(self.graph.nodes), op=op, origin=self.origin)
        for operand in operands:
            node.operands.add(node=operand.node, result=operand.result)
        refs = []
        for i, (dtype, shape) in enumerate(results):
            dims = self._numbers(shape, size_table.DIM, node.id, i)
            node.results.add(dtype=dtypes.number_of(dtype), dims=dims)
            refs.append(Ref(node.id, i, dtype, tuple(shape)))
        for part, name in enumerate(sorted(attrs)):
            value = attrs[name]
            if sizes.is_symbolic(value):
                self.places.append((size_table.ATTR, node.id, part, 0, value))
                value = sizes.number_of(value)
            elif isinstance(value, (list, tuple, range)):
                value = self._numbers(value, size_table.ATTR, node.id, part)
            _set_attr(node.attrs.add(name=name), value)
        return refs

    def _numbers(self, values, *place):
        """The numbers at the hints of a list of integers, those of Sizes noted for these places."""
        for element, value in enumerate(values):
            if sizes.is_symbolic(value):
                self.places.append((*place, element, value))
        return [sizes.number_of(value) for value in values]

    def input(self, dtype, shape, info, strides=()):
        """Adds a graph input described by a schema.InputInfo, whose strides are these."""
        (ref,) = self.node("input", [], [(dtype, shape)])
        self.graph.nodes[ref.node].input.CopyFrom(info)
        strides = self._numbers(strides, size_table.STRIDE, ref.node, 0)
        self.graph.nodes[ref.node].input.strides.extend(strides)
        return ref

    # --- constants ------------------------------------------------------------------------------
    def full(self, value, dtype, shape=()):
        """A constant of any shape; equal ones are one node. NaN, which no attribute may be, is
        written as 0 / 0."""
        value = sizes.as_float(value)
        number = sizes.number_of(value)
        key = (sizes.key_of(value), str(number), dtype, *map(sizes.key_of, shape))
        if key not in self._constants:
            if not math.isnan(number):
                (ref,) = self.node(
                    "full", [], [(dtype, shape)],
                    value=value, dtype=dtypes.name_of(dtype), shape=list(shape),
                )  # fmt: skip
            else:
                ref = self.pointwise("div", self.full(0.0, dtype, shape), self.full(0.0, dtype))
            self._constants[key] = ref
        return self._constants[key]

    def iota(self, dtype, shape, axis, start=0, step=1):
        """result[i] = start + step * i[axis]."""
        return self.node(
            "iota", [], [(dtype, shape)],
            axis=axis, start=start, step=step, dtype=dtypes.name_of(dtype), shape=list(shape),
        )[0]  # fmt: skip

    # --- pointwise ------------------------------------------------------------------------------
    def pointwise(self, op, *operands, dtype=None):
        """Operands broadcast; the result has the last operand's dtype unless `dtype` says other."""
        shape = broadcast_shapes(*(o.shape for o in operands))
        return self.node(op, operands, [(dtype or operands[-1].dtype, shape)])[0]

    def cast(self, x, dtype):
        if x.dtype == dtype:
            return x
        return self.node("cast", [x], [(dtype, x.shape)], dtype=dtypes.name_of(dtype))[0]

    # --- reductions -----------------------------------------------------------------------------
    def reduce(self, op, x, axes, keep=False):
        """sum, amax or amin over `axes`; x itself if there are none."""
        axes = sorted(axes)
        if not axes:
            return x
        kept = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
        return self.node(op, [x], [(x.dtype, kept)], axes=axes, keep=int(keep))[0]

    def matmul(self, a, b, dtype=None):
        """[.., M, K] x [.., K, N] -> [.., M, N]; `dtype`: the result's, if not the operands'."""
        shape = (*a.shape[:-1], b.shape[-1])
        if dtype in (None, a.dtype):
            return self.node("matmul", [a, b], [(a.dtype, shape)])[0]
        return self.node("matmul", [a, b], [(dtype, shape)], dtype=dtypes.name_of(dtype))[0]

    def grouped_matmul(self, a, b, ends, dtype=None, scales=(), block=0):
        """[S, K] x [G, K, N] -> [S, N], or [M, S] x [S, N] -> [G, M, N]; ends [G]. scales: none, or
        of the rows, [S] or [G, M], and of the columns, [G, N]; with `block`, of blocks of so many
        terms: [rows, K / block] and [G, K / block, columns], G being 1 where b is a matrix."""
        shape = (a.shape[0], b.shape[-1])
        shape = shape if b.rank == 3 else (*ends.shape, *shape)
        attrs = {} if dtype in (None, a.dtype) else {"dtype": dtypes.name_of(dtype)}
        attrs |= {"scale_block": block} if block else {}
        operands, result = [a, b, ends, *scales], (dtype or a.dtype, shape)
        return self.node("grouped_matmul", operands, [result], **attrs)[0]

    def segment_amax(self, x, ends, axis, magnitude=False):
        """x with the extent G of ends [G] along the axis: each group's largest element, or
        magnitude."""
        shape = (*x.shape[:axis], *ends.shape, *x.shape[axis + 1 :])
        attrs = {"magnitude": 1} if magnitude else {}
        return self.node("segment_amax", [x, ends], [(x.dtype, shape)], axis=axis, **attrs)[0]

    def scatter_lines(self, index, src, extent):
        """Lines of so many zeros to which src is added at the index along the last axis, each line
        by itself. The index has the last axes of src."""
        shape = (*src.shape[:-1], extent)
        return self.node("scatter_lines", [index, src], [(src.dtype, shape)], extent=extent)[0]

    # --- convolutions and scans -----------------------------------------------------------------
    def convolution(self, x, w, **window):
        """`window`: stride, padding, dilation (one number a spatial dim) and groups."""
        moves = (window[name] for name in ("stride", "padding", "dilation"))
        walk = zip(x.shape[2:], w.shape[2:], *moves, strict=True)
        out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in walk]
        shape = (x.shape[0], w.shape[0], *out)
        return self.node("convolution", [x, w], [(x.dtype, shape)], **window)[0]

    def convolution_input_gradient(self, dy, w, shape, **window):
        return self.node(
            "convolution_input_gradient", [dy, w], [(dy.dtype, shape)],
            input_shape=list(shape), **window,
        )[0]  # fmt: skip

    def convolution_weight_gradient(self, dy, x, shape, **window):
        return self.node(
            "convolution_weight_gradient", [dy, x], [(dy.dtype, shape)],
            weight_shape=list(shape), **window,
        )[0]  # fmt: skip

    def scan(self, op, x, axis):
        """"cumsum" or "cumprod"."""
        return self.node(op, [x], [(x.dtype, x.shape)], axis=axis)[0]

    # --- views ----------------------------------------------------------------------------------
    def reshape(self, x, shape):
        shape = tuple(shape)
        if sizes.identical(shape, x.shape):
            return x
        return self.node("reshape", [x], [(x.dtype, shape)], shape=list(shape))[0]

    def permute(self, x, perm):
        perm = list(perm)
        if perm == list(range(x.rank)):
            return x
        return self.node("permute", [x], [(x.dtype, [x.shape[p] for p in perm])], perm=perm)[0]

    def expand(self, x, shape):
        shape = tuple(shape)
        if sizes.identical(shape, x.shape):
            return x
        return self.node("expand", [x], [(x.dtype, shape)], shape=list(shape))[0]

    def slice(self, x, axis, start, stop, step=1):
        if sizes.identical((start, stop, step), (0, x.shape[axis], 1)):
            return x
        shape = list(x.shape)
        shape[axis] = (stop - start + step - 1) // step
        return self.node(
            "slice", [x], [(x.dtype, shape)], axis=axis, start=start, stop=stop, step=step
        )[0]

    def flip(self, x, axes):
        return self.node("flip", [x], [(x.dtype, x.shape)], axes=sorted(axes))[0] if axes else x

    def pad(self, x, low, high, value):
        if not any(low) and not any(high):
            return x
        shape = [l + n + h for l, n, h in zip(low, x.shape, high)]
        value = sizes.as_float(value)
        return self.node("pad", [x], [(x.dtype, shape)], low=low, high=high, value=value)[0]

    # --- joins and indexed ops ------------------------------------------------------------------
    def cat(self, parts, axis):
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self.node("cat", parts, [(parts[0].dtype, shape)], axis=axis)[0]

    def slice_scatter(self, base, src, axis, start, stop, step=1):
        return self.node(
            "slice_scatter", [base, src], [(base.dtype, base.shape)],
            axis=axis, start=start, stop=stop, step=step,
        )[0]  # fmt: skip

    def index_select(self, x, index, axis):
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        return self.node("index_select", [x, index], [(x.dtype, shape)], axis=axis)[0]

    def gather(self, x, index, axis):
        return self.node("gather", [x, index], [(x.dtype, index.shape)], axis=axis)[0]

    def index_add(self, base, index, src, axis):
        return self.node("index_add", [base, index, src], [(base.dtype, base.shape)], axis=axis)[0]

    # --- outputs --------------------------------------------------------------------------------
    def output(self, ref, name, strides=()):
        """Adds an output; `ref` None where the host expects no gradient."""
        out = self.graph.outputs.add(name=name)
        if ref is None:
            out.absent = True
            return
        out.value.node = ref.node
        out.value.result = ref.result
        owner = len(self.graph.outputs) - 1
        out.strides.extend(self._numbers(strides, size_table.OUTPUT_STRIDE, owner, 0))


def broadcast_shapes(*shapes):
    """The shape of operands of these shapes. ValueError where they do not go together."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for axis, n in enumerate(shape, rank - len(shape)):
            result[axis] = _broadcast(result[axis], n, shapes)
    return tuple(result)


def _broadcast(m, n, shapes):
    """Ones that are numbers go first: what a Size is asked becomes a fact."""
    if sizes.identical(m, n) or sizes.identical(n, 1):
        return m
    if sizes.identical(m, 1) or m == n:
        return n
    if n == 1:
        return m
    if m == 1:
        return n
    raise ValueError(f"shapes {', '.join(map(str, map(list, shapes)))} do not broadcast")


def _set_attr(attr, value):
    if isinstance(value, (bool, int)):
        attr.i = int(value)
    elif isinstance(value, float):
        attr.f = value
    elif isinstance(value, str):
        attr.s = value
    else:
        attr.ints.values.extend(value)
        attr.ints.SetInParent()
