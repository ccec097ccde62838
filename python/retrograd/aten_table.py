"""The table of ATen and prims ops: one row an op, saying which of our ops it becomes.

A row is `row(name, ..)(function)`; the function takes a `translate.Call` (the builder and the fx
node) and the fx node's arguments, with a `Ref` in place of each tensor, and returns the Ref, or the
tuple of Refs, of the result. To add an op, add a row here or, for the ops with more to say about,
in the module of its theme in rows/: view.py, index.py, pool.py and so on.
"""

import torch

from retrograd import dtypes, sizes
from retrograd.builder import Ref

TABLE = {}
# By op: which of its calls the row has, by what fx holds of them; of an op without an entry all.
TAKES = {}


def row(*names, takes=None):
    """Registers the decorated function for these ops, named as fx prints their targets.

    takes: of a call's arguments, tensors among them as fx nodes, whether the row has such a call; a
    backward with another one is divided, and PyTorch runs it.
    """

    def register(function):
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = function
            if takes is not None:
                TAKES[name] = takes
        return function

    return register


# --- helpers of the rows -------------------------------------------------------------------------
def axis_of(x, axis):
    """`axis` counted from the front."""
    return axis % max(x.rank, 1)


def axes_of(x, axes):
    """The ascending axes that PyTorch means by `axes`: None and [] are all of them."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return list(range(x.rank))
    axes = [axes] if isinstance(axes, int) else axes
    return sorted({axis_of(x, a) for a in axes}) if x.rank else []


def common_dtype(*operands):
    """PyTorch's type promotion over Refs and Python numbers."""

    def stand_in(o):
        if isinstance(o, Ref):
            return torch.empty([1] * o.rank, dtype=o.dtype, device="meta")
        return type(sizes.number_of(o))() if sizes.is_symbolic(o) else o

    operands = [stand_in(o) for o in operands]
    tensors = [o for o in operands if isinstance(o, torch.Tensor)]
    dtype = tensors[0].dtype
    # Dimensioned tensors outrank 0-d ones, and those outrank numbers, within a category.
    dims = [o for o in tensors if o.ndim] or tensors
    result = dims[0]
    for o in dims[1:]:
        dtype = torch.promote_types(result.dtype, o.dtype)
        result = torch.empty([1] * o.ndim, dtype=dtype, device="meta")
    for o in operands:
        if not any(o is d for d in dims):
            dtype = torch.result_type(result, o)
            result = torch.empty([1] * result.ndim, dtype=dtype, device="meta")
    return result.dtype


# What arithmetic on booleans means.
_BOOL_OPS = {
    "mul": "logical_and",
    "minimum": "logical_and",
    "add": "logical_or",
    "maximum": "logical_or",
}


def arithmetic(call, op, *operands, floating=False):
    """A pointwise op on promoted operands. A number that a 16-bit type does not hold exactly makes
    the op compute in fp32 and round once, as PyTorch's kernels do."""
    b = call.b
    dtype = common_dtype(*operands)
    if dtype == torch.bool and op in _BOOL_OPS:
        return b.pointwise(_BOOL_OPS[op], *(convert(b, o, dtype) for o in operands))
    if floating and not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    numbers = [o for o in operands if not isinstance(o, Ref)]
    exact = all(dtypes.represents(dtype, n) for n in numbers)
    compute = dtype if exact else dtypes.compute_dtype(dtype)
    refs = [convert(b, o, compute) for o in operands]
    return b.cast(b.pointwise(op, *refs), dtype)


def convert(b, operand, dtype):
    """A Ref or a number as a Ref of the dtype."""
    return b.cast(operand, dtype) if isinstance(operand, Ref) else b.full(operand, dtype)


def scaled(call, x, alpha):
    """alpha * x, for the alpha arguments of add and sub."""
    return x if alpha == 1 else arithmetic(call, "mul", x, alpha)


# --- arithmetic ----------------------------------------------------------------------------------
def _pointwise_rows():
    names = "mul.Tensor mul.Scalar maximum.default minimum.default"
    for name in names.split():
        op = name.split(".")[0]
        row(f"aten.{name}")(lambda call, x, y, op=op: arithmetic(call, op, x, y))
    for name in ("neg", "abs", "relu"):
        row(f"aten.{name}.default")(lambda call, x, op=name: arithmetic(call, op, x))
    floats = "sqrt rsqrt reciprocal exp exp2 log log2 log1p tanh sigmoid sin cos erf"
    for name in floats.split():
        row(f"aten.{name}.default")(lambda call, x, op=name: arithmetic(call, op, x, floating=True))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        for overload in ("Tensor", "Scalar"):
            row(f"aten.{name}.{overload}")(lambda call, x, y, op=name: compare(call, op, x, y))


def compare(call, op, x, y):
    dtype = common_dtype(x, y)
    b = call.b
    return b.pointwise(op, convert(b, x, dtype), convert(b, y, dtype), dtype=torch.bool)


_pointwise_rows()


@row("aten.add.Tensor", "aten.add.Scalar")
def add(call, x, y, alpha=1):
    return arithmetic(call, "add", x, scaled(call, y, alpha) if isinstance(y, Ref) else y * alpha)


@row("aten.sub.Tensor", "aten.sub.Scalar")
def sub(call, x, y, alpha=1):
    return arithmetic(call, "sub", x, scaled(call, y, alpha) if isinstance(y, Ref) else y * alpha)


@row("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(call, x, y, alpha=1):
    return arithmetic(call, "sub", y, scaled(call, x, alpha))


@row("aten.div.Tensor", "aten.div.Scalar")
def div(call, x, y):
    return arithmetic(call, "div", x, y, floating=True)


@row("prims.fma.default")
def fma(call, x, y, z):
    return arithmetic(call, "fma", x, y, z)


@row("aten.addcmul.default")
def addcmul(call, x, y, z, value=1):
    return add(call, x, scaled(call, arithmetic(call, "mul", y, z), value))


@row("aten.addcdiv.default")
def addcdiv(call, x, y, z, value=1):
    return add(call, x, scaled(call, div(call, y, z), value))


@row("aten.square.default")
def square(call, x):
    return arithmetic(call, "mul", x, x)


@row("aten.sign.default")
def sign(call, x):
    return x if x.dtype == torch.bool else call.b.pointwise("sign", x)


@row("aten.pow.Tensor_Scalar")
def power(call, x, exponent):
    """x to a small integer, a half or minus a half without the general pow; rounded once."""
    b, dtype = call.b, common_dtype(x, exponent)
    if exponent == 0:
        return b.full(1, dtype, x.shape)
    if exponent == 1:
        return b.cast(x, dtype)
    y = b.cast(x, dtypes.compute_dtype(dtype))
    if exponent in (0.5, -0.5):
        y = b.pointwise("sqrt" if exponent > 0 else "rsqrt", y)
    elif exponent in (2, 3, 4):
        square = b.pointwise("mul", y, y)
        if exponent == 2:
            y = square
        else:
            y = b.pointwise("mul", square, square if exponent == 4 else y)
    elif exponent in (-1, -2) and dtype.is_floating_point:
        y = b.pointwise("reciprocal", y if exponent == -1 else b.pointwise("mul", y, y))
    elif dtype.is_floating_point:
        y = b.pointwise("pow", y, b.full(exponent, y.dtype))
    else:
        raise call.error(f"an integer to the power {exponent} has no counterpart")
    return b.cast(y, dtype)


@row("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power_general(call, x, exponent):
    if not common_dtype(x, exponent).is_floating_point:
        raise call.error("an integer to the power of an integer tensor has no counterpart")
    return arithmetic(call, "pow", x, exponent)


@row("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(call, x, low):
    return arithmetic(call, "maximum", x, low)


@row("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(call, x, high):
    return arithmetic(call, "minimum", x, high)


@row("aten.clamp.default", "aten.clamp.Tensor")
def clamp(call, x, low=None, high=None):
    x = x if low is None else clamp_min(call, x, low)
    return x if high is None else clamp_max(call, x, high)


@row("aten.isnan.default")
def isnan(call, x):
    return compare(call, "ne", x, x)


@row("aten.isinf.default")
def isinf(call, x):
    if not x.dtype.is_floating_point:
        return call.b.full(0, torch.bool, x.shape)
    return compare(call, "eq", arithmetic(call, "abs", x), float("inf"))


# --- logic and selection -------------------------------------------------------------------------
def truth(call, x):
    """x != 0 as bool."""
    return x if x.dtype == torch.bool else compare(call, "ne", x, 0)


@row("aten.logical_and.default")
def logical_and(call, x, y):
    return call.b.pointwise("logical_and", truth(call, x), truth(call, y))


@row("aten.logical_or.default")
def logical_or(call, x, y):
    return call.b.pointwise("logical_or", truth(call, x), truth(call, y))


@row("aten.logical_not.default")
def logical_not(call, x):
    return call.b.pointwise("logical_not", truth(call, x))


def _only_bool(call, *operands):
    if any(o.dtype != torch.bool for o in operands):
        raise call.error("bitwise operations on integers have no counterpart")


@row("aten.bitwise_and.Tensor")
def bitwise_and(call, x, y):
    _only_bool(call, x, y)
    return logical_and(call, x, y)


@row("aten.bitwise_or.Tensor")
def bitwise_or(call, x, y):
    _only_bool(call, x, y)
    return logical_or(call, x, y)


@row("aten.bitwise_xor.Tensor", "aten.logical_xor.default")
def exclusive_or(call, x, y):
    if "bitwise" in call.name:
        _only_bool(call, x, y)
    return compare(call, "ne", truth(call, x), truth(call, y))


@row("aten.bitwise_not.default")
def bitwise_not(call, x):
    """-1 - x, which is what the bits of an integer are worth when all are turned over."""
    if x.dtype == torch.bool:
        return logical_not(call, x)
    return arithmetic(call, "sub", -1, x)


@row("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(call, condition, x, y):
    b = call.b
    dtype = common_dtype(x, y) if isinstance(x, Ref) or isinstance(y, Ref) else call.dtype
    return b.pointwise("where", truth(call, condition), convert(b, x, dtype), convert(b, y, dtype))


@row("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(call, x, mask, value):
    return call.b.pointwise("where", mask, convert(call.b, value, x.dtype), x)


# --- types and constants -------------------------------------------------------------------------
@row("prims.convert_element_type.default")
def convert_element_type(call, x, dtype):
    return call.b.cast(x, dtype)


@row("aten._to_copy.default")
def to_copy(call, x, dtype=None, **_):
    return call.b.cast(x, dtype or x.dtype)


@row("aten.full.default", "aten.new_full.default", "aten.full_like.default")
def full(call, *args, **_):
    return call.b.full(args[-1], call.dtype, call.shape)


# What an empty tensor holds may be anything.
@row(
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.new_zeros.default",
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.empty_strided.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
    "aten._efficientzerotensor.default",
)
def zeros(call, *_, **__):
    return call.b.full(0, call.dtype, call.shape)


@row("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(call, *_, **__):
    return call.b.full(1, call.dtype, call.shape)


@row("aten.scalar_tensor.default")
def scalar_tensor(call, value, **_):
    return call.b.full(value, call.dtype)


@row("prims.iota.default")
def iota(call, length, start, step, dtype, **_):
    return call.b.iota(dtype, (length,), 0, start, step)


@row("aten.arange.start_step", "aten.arange.start", "aten.arange.default")
def arange(call, *bounds, **_):
    b = call.b
    start, step = (0 if len(bounds) == 1 else bounds[0]), (bounds[2] if len(bounds) == 3 else 1)
    if not call.dtype.is_floating_point or (int(start) == start and int(step) == step):
        return b.iota(call.dtype, call.shape, 0, int(start), int(step))
    line = arithmetic(call, "mul", b.iota(torch.float64, call.shape, 0), step)
    return b.cast(arithmetic(call, "add", line, start), call.dtype)


@row(
    "aten.alias.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
)
def identity(call, x, **_):
    return x


@row("aten.copy.default")
def copy(call, target, source, *_):
    return call.b.expand(call.b.cast(source, target.dtype), target.shape)


# --- matmuls -------------------------------------------------------------------------------------
@row("aten.mm.default", "aten.bmm.default", "aten.mm.dtype", "aten.bmm.dtype")
def matmul(call, x, y, dtype=None):
    if not x.dtype.is_floating_point:
        raise call.error(f"a product of {x.dtype} matrices has no counterpart; cast to a float")
    return call.b.matmul(x, y, dtype)


@row("aten.mv.default")
def matvec(call, x, y):
    return call.b.reshape(matmul(call, x, call.b.reshape(y, (*y.shape, 1))), call.shape)


@row("aten.addmm.default", "aten.baddbmm.default")
def addmm(call, x, a, b, beta=1, alpha=1):
    """beta x + alpha (a b), rounded once: the product stays in the compute type."""
    out, compute = call.b, dtypes.compute_dtype(x.dtype)
    product = scaled(call, matmul(call, a, b, compute), alpha)
    if beta == 0:
        return out.cast(product, x.dtype)
    x_part = scaled(call, out.cast(x, compute), beta)
    return out.cast(out.pointwise("add", x_part, product), x.dtype)


def lookup(name):
    """The row of an op, or None."""
    return TABLE.get(name)


def has_row(node):
    """Whether a row has the call that an fx node is."""
    name = str(node.target)
    takes = TAKES.get(name)
    return name in TABLE and (takes is None or takes(*node.args, **node.kwargs))
