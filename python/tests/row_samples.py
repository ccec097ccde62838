"""Samples of the rows for rounding and scattering, and what makes samples."""

import torch

torch.manual_seed(7)
INF = float("inf")
F32, F64, BF16, I64 = torch.float32, torch.float64, torch.bfloat16, torch.int64


def f(*shape, dtype=F32):
    return torch.randn(shape).to(dtype)


def positive(*shape, dtype=F32):
    return (torch.rand(shape) + 0.3).to(dtype)


def ints(*shape, high=5, dtype=I64):
    return torch.randint(0, high, shape, dtype=dtype)


def bools(*shape):
    return torch.rand(shape) > 0.5


def unique(*shape, axis, extent):
    """Indices along an axis, no two of a line equal."""
    lines = torch.rand(*shape[:axis], extent, *shape[axis + 1 :]).argsort(axis)
    return lines.narrow(axis, 0, shape[axis]).contiguous()


HALVES = torch.arange(-14, 15, dtype=F64) / 4
# Quotients that a division in doubles rounds to a whole number, and whole numbers of 63 bits.
LONG = torch.tensor([2**53 + 1, 2**62 + 5, -(2**62) - 5, -(2**53) - 1, 7, -7])
SHORT = torch.tensor([3, 7, -7, 2, -2, 3])
MODES = ("floor", "trunc")


def rounding():
    values = [((HALVES,), {}), ((HALVES.bfloat16(),), {}), ((ints(4),), {}), ((f(),), {})]
    return {f"aten.{n}.default": values for n in ("floor", "ceil", "trunc", "round")}


def remainders():
    pairs = [
        ((HALVES, torch.where(HALVES == 0, 1, HALVES).flip(0)), {}),
        ((f(3, 4), positive(4)), {}),
        ((LONG, SHORT), {}),
        ((ints(3, 4, dtype=torch.int32) - 2, ints(4, dtype=torch.int32) + 1), {}),
    ]
    numbers = [((f(3, 4, dtype=d), n), {}) for n in (0.75, -0.75) for d in (F64, BF16)]
    numbers += [((LONG, n), {}) for n in (3, -7)]
    modes = [(a, {"rounding_mode": m}) for a, _ in pairs for m in (*MODES,)]
    return {
        **{f"aten.{n}.Tensor": pairs for n in ("fmod", "remainder")},
        **{f"aten.{n}.Scalar": numbers for n in ("fmod", "remainder")},
        "aten.remainder.Scalar_Tensor": [((7, SHORT), {})],
        "aten.floor_divide.default": pairs,
        "aten.floor_divide.Scalar": numbers,
        "aten.div.Tensor_mode": [*modes, ((f(3), positive(3)), {"rounding_mode": None})],
        "aten.div.Scalar_mode": [(a, {"rounding_mode": m}) for a, _ in numbers for m in MODES],
    }


def scatters():
    x, mask = f(3, 4), bools(3, 4)
    several = unique(3, 3, axis=1, extent=4)
    deep = unique(2, 3, 4, axis=0, extent=3)
    equal = ints(3, 6, high=4)
    padded = [torch.tensor([[-1], [0], [2], [3]]), torch.tensor([[0, 1, 4, 5]])]
    inside = (padded[0] >= 0) & (padded[0] < 3) & (padded[1] < 4)
    return {
        "aten.scatter.value": [((x, 1, ints(3, 1, high=4), -1.0), {}), ((x, 1, equal, 0.5), {})],
        "aten.scatter.src": [
            ((x, 1, ints(3, 1, high=4), f(3, 2)), {}),
            ((x, 1, several, f(3, 4)), {}),
            ((f(3, 4, 5), 0, deep, f(2, 3, 5)), {}),
            ((ints(3, 4), 1, several, ints(3, 3)), {}),
            ((bools(3, 4), 1, several, bools(3, 3)), {}),
            ((f(), 0, torch.tensor(0), f()), {}),
            # Equal indices that bring equal values.
            ((x, 1, equal, equal.double().sin().float()), {}),
            ((ints(3, 4), 1, equal, equal * 3), {}),
        ],
        "aten.scatter_add.default": [
            ((x, 1, equal, f(3, 6)), {}),
            ((f(3, 4, 5), 0, ints(2, 3, 4, high=3), f(2, 3, 5)), {}),
            ((bools(3, 4), 0, ints(2, 4, high=3), bools(2, 4)), {}),
        ],
        "aten.masked_scatter.default": [((x, mask, f(20)), {}), ((x, mask[0], f(3, 4)), {})],
        "aten.masked_scatter_backward.default": [((x, mask, [2, 7]), {})],
        "aten._unsafe_masked_index.default": [((x, inside, padded, 0.5), {})],
        "aten._unsafe_masked_index_put_accumulate.default": [((x, inside, padded, f(4, 4)), {})],
    }


SAMPLES = {**rounding(), **remainders(), **scatters()}
