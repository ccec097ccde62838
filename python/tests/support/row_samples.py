"""Samples of the rows for rounding, scattering, reductions, formulas and views, and what makes
samples."""

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


def grouped():
    """Rows in groups, then sums, by the layouts that a backward has; all rows are in a group, since
    PyTorch says nothing of the others."""
    samples = []
    for ends, dtype in (([4, 4, 12], F32), ([0, 7, 12], BF16), ([12], F32)):
        offs, groups = torch.tensor(ends, dtype=torch.int32), len(ends)
        x, w, dy = f(12, 8, dtype=dtype), f(groups, 8, 16, dtype=dtype), f(12, 16, dtype=dtype)
        samples += [((x, w, offs), {}), ((dy, w.mT, offs), {}), ((x.t(), dy, offs), {})]
        samples.append(((dy.t(), x, offs), {"out_dtype": dtype}))
    return {"aten._grouped_mm.default": samples, **_grouped_fallback()}


def _grouped_fallback():
    """transformers' op, with an empty group, ends of both types, and the weights' own strides."""
    import transformers.integrations.moe  # noqa: F401  registers it

    forward, backward = [], []
    for ends, dtype in (([4, 4, 12], F32), ([0, 7, 12], F64), ([12], BF16)):
        for offs in (torch.tensor(ends, dtype=torch.int32), torch.tensor(ends)):
            x, w = f(12, 8, dtype=dtype), f(len(ends), 16, 8, dtype=dtype).mT
            forward.append(((x, w, offs), {}))
            backward.append(((x, w, offs, f(12, 16, dtype=dtype)), {}))
    op = "transformers.grouped_mm_fallback"
    return {f"{op}.default": forward, f"{op}_backward.default": backward}


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
        "aten.bitwise_and.Scalar": [((LONG, 7), {}), ((ints(5) - 3, 1), {}), ((ints(3), 0), {})],
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
    # More a line than are compared with each position.
    wide, many, crowded = f(3, 30), unique(3, 20, axis=1, extent=30), ints(3, 20, high=5)
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
            ((wide, 1, many, f(3, 20)), {}),
            ((wide, 1, crowded, crowded.double().sin().float()), {}),
            # Indices that some lines do not have.
            ((f(5, 4), 1, several, f(3, 4)), {}),
        ],
        "aten.scatter_add.default": [
            ((x, 1, equal, f(3, 6)), {}),
            ((f(3, 4, 5), 0, ints(2, 3, 4, high=3), f(2, 3, 5)), {}),
            ((bools(3, 4), 0, ints(2, 4, high=3), bools(2, 4)), {}),
            ((ints(3, 4), 1, equal, ints(3, 6)), {}),
            ((f(3, 4, dtype=torch.bfloat16), 1, equal, f(3, 6, dtype=torch.bfloat16)), {}),
            ((wide, 1, crowded, f(3, 20)), {}),
            ((torch.zeros(3, 30), 1, crowded, f(3, 20)), {}),
            ((f(30, 3), 0, crowded.t(), f(20, 3)), {}),
            ((f(2, 3, 30), -1, crowded.expand(2, 3, 20), f(2, 3, 20)), {}),
            ((wide, 1, crowded[:2], f(3, 20)), {}),
            ((f(5), 0, torch.zeros(2, 0, dtype=I64), f(2, 0)), {}),
            ((bools(3, 30), 1, crowded, bools(3, 20)), {}),
        ],
        "aten.masked_scatter.default": [((x, mask, f(20)), {}), ((x, mask[0], f(3, 4)), {})],
        "aten.masked_scatter_backward.default": [((x, mask, [2, 7]), {})],
        "aten._unsafe_masked_index.default": [((x, inside, padded, 0.5), {})],
        "aten._unsafe_masked_index_put_accumulate.default": [((x, inside, padded, f(4, 4)), {})],
    }


def reductions():
    nan = torch.tensor([[1.0, float("nan"), 3.0, float("nan")], [-INF, 2.0, 2.0, 1.0]])
    ties = ints(5, 6, high=3).float()
    extremes = [((ties, 1), {}), ((nan, -1, True), {}), ((ints(4, 5), 0), {}), ((f(), 0), {})]
    places = [((ties,), {}), ((ties, 0), {}), ((nan, 1, True), {}), ((f(),), {})]
    wholes = [((f(3, 4),), {}), ((nan,), {}), ((ints(7),), {})]
    endless = torch.tensor([[-INF, -INF, 1.0, INF], [2.0, -INF, float("nan"), 0.0]])
    bounds = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    values = torch.tensor([[-3.0, -1.0, 0.25], [0.5, 2.0, float("nan")]])
    return {
        **{f"aten.{n}.dim": extremes for n in ("max", "min")},
        **{f"aten.{n}.default": wholes for n in ("max", "min")},
        **{f"aten.{n}.default": places for n in ("argmax", "argmin")},
        "aten.any.default": [((bools(3, 4),), {}), ((torch.zeros(3),), {}), ((bools(0),), {})],
        "aten.any.dim": [((bools(3, 4), 1, True), {}), ((ints(3, 4, high=2), 0), {})],
        "aten.any.dims": [((bools(3, 4, 2), [0, 2]), {})],
        "aten.var.correction": [((f(3, 4, 5), [0, 2]), {"correction": 1}), ((f(6),), {})],
        "aten.prod.default": [((positive(3, 5),), {}), ((ints(4),), {}), ((f(0),), {})],
        "aten.prod.dim_int": [
            ((positive(3, 7, dtype=d), 1), {}) for d in (F64, BF16)
        ] + [((bools(3, 4), 0), {"dtype": torch.bool}), ((f(3, 0), 1, True), {})],
        "aten.cumprod.default": [((f(3, 7, dtype=F64), -1), {}), ((ints(5), 0), {}),
                                 ((positive(6, dtype=BF16), 0), {}), ((f(), 0), {})],
        "aten.logcumsumexp.default": [((f(3, 7, dtype=F64), -1), {}), ((40 * f(5, 3), 0), {}),
                                      ((f(6, dtype=BF16), 0), {}), ((endless, 1), {}),
                                      ((f(), 0), {})],
        "aten.bucketize.Tensor": [((values, bounds), {"right": r}) for r in (False, True)],
    }  # fmt: skip


def formulas():
    wide = torch.tensor([0.0, -0.0, 1e-9, -1e-5, 0.3, -0.99, 1.0, -1.5, 9.0, -40.0, 300.0]).double()
    unit, above = wide[:6], wide[6:].abs()
    signs = torch.tensor([0.0, -0.0, 1.5, -2.0, INF, -INF])
    ends = torch.tensor([1.0, -1.0, 0.999999, -0.999999, 0.75, 1.1]).double()
    pair = ((wide, wide.flip(0)), {}), ((torch.tensor([INF, 3e200]), torch.tensor([-1.0, 4e200])), {})
    everywhere = [((wide,), {}), ((wide.bfloat16()[:8],), {}), ((ints(4),), {})]
    lengths = [((4, 3, 2), (4, 1, 1), 0, F64), ((4, 6), (4, 1), 0, torch.float32), ((3, 5), (1, 5), 1, F64)]
    return {
        **{f"aten.{n}.default": everywhere for n in "exp2 sinh cosh tan asinh expm1".split()},
        **{f"aten.{n}.default": [((above,), {})] for n in ("log2", "log10", "acosh")},
        "aten.atanh.default": [((unit,), {})],
        **{f"aten.{n}.default": [((unit,), {}), ((ends,), {}), ((ends.float(),), {})] for n in ("asin", "acos")},
        "aten.atan.default": [*everywhere, ((signs,), {}), ((torch.linspace(-9, 9, 99),), {})],
        "aten.atan2.default": [*pair, ((wide, -wide.flip(0)), {}), ((f(40), f(40)), {}),
                               ((signs.repeat(6), signs.repeat_interleave(6)), {}),
                               ((torch.tensor([3e38, -3e38, 2.0]), torch.tensor([1.5e38, 2e38, 1.0])), {})],
        "aten.hypot.default": [*pair],
        "aten.erfinv.default": [((unit,), {}), ((torch.tensor([0.999, -1.0, 1.0, 2.0]),), {})],
        "aten.digamma.default": [((wide,), {}), ((torch.tensor([1e-3, 1.46, 80.0]),), {})],
        "aten.polygamma.default": [((0, wide), {}), ((1, wide[:9].abs().float()), {})],
        "aten.glu.default": [((f(3, 6, dtype=d), a), {}) for d, a in ((F64, -1), (BF16, 1))],
        **{
            f"aten.{n}shrink_backward.default": [((wide + 1, wide, 0.3), {}), ((f(3), f(3), 0), {})]
            for n in ("soft", "hard")
        },
        "aten._weight_norm_interface.default": [
            ((f(*v, dtype=d), f(*g, dtype=d), a), {}) for v, g, a, d in lengths
        ],
        "aten._weight_norm_interface_backward.default": [
            ((f(*v, dtype=d), f(*v, dtype=d), f(*g, dtype=d), positive(*g, dtype=n), a), {})
            for (v, g, a, d), n in zip(lengths, (F64, torch.float32, F64))
        ],
        "aten.copysign.Tensor": [((f(6), signs), {}), ((ints(6), signs), {})],
        "aten.copysign.Scalar": [((f(6), -2.0), {}), ((f(6), 3.0), {})],
        "aten.signbit.default": [((signs,), {}), ((ints(4) - 2,), {})],
    }


def views():
    x = f(3, 4, 5)
    along = [(0, 0, 1), (1, 0, 2), (-2, 2, 1), (4, 1, 0), (9, 0, 1)]
    diagonals = [((x, *a), {}) for a in along]
    parts = [((x, f(*x.diagonal(*a).shape), *a), {}) for a in along]
    empty = torch.zeros
    return {
        "aten.repeat.default": [((x, [2, 1, 3]), {}), ((x, [2, 1, 1, 2]), {}), ((f(), [3]), {})],
        "aten.unfold.default": [((x, 1, 2, 1), {}), ((x, -1, 2, 3), {}), ((f(), 0, 1, 1), {})],
        "aten.diagonal.default": diagonals,
        "aten.diagonal_scatter.default": [*parts, ((f(1, 1), f(1)), {})],
        "aten.empty.memory_format": [(([2, 3],), {}, empty(2, 3))],
        "aten.empty_like.default": [((x,), {}, empty(3, 4, 5))],
        "aten.empty_strided.default": [(([2, 3], [1, 2]), {}, empty(2, 3))],
        "aten.new_empty.default": [((x, [2]), {}, empty(2))],
        "aten.new_empty_strided.default": [((x, [2, 3], [3, 1]), {}, empty(2, 3))],
        "aten._efficientzerotensor.default": [(([2, 3],), {}, empty(2, 3))],
    }


def pairs():
    """Of distances, of three factors and of bags of embeddings."""
    x, y = f(2, 4, 3, dtype=F64), f(2, 5, 3, dtype=F64)
    y[0, 1] = x[0, 2]  # a distance of 0
    powers = [0.0, 0.7, 1.0, 1.5, 2.0, 3.0, INF]
    index, bags, offsets = ints(7, high=6), torch.tensor([0, 0, 2, 2, 2, 3, 3]), [0, 2, 2, 5]
    offsets, sizes = torch.tensor(offsets), torch.tensor([2, 0, 3, 2])
    winners = torch.where(sizes[:, None] > 0, ints(4, 3, high=6), 0)
    dy, weights = f(4, 3, dtype=F64), f(7, dtype=F64)
    modes = [(0, False, None, -1), (0, False, weights, 2), (1, False, None, 2), (2, False, None, -1)]
    bag = [(m, (q, w, p)) for m, q, w, p in modes]
    return {
        "aten._cdist_backward.default": [
            ((f(2, 4, 5, dtype=F64), x, y, p, torch.cdist(x, y, p)), {}) for p in powers
        ],
        "aten._trilinear.default": [
            ((f(4, 3), f(2, 3, 5), f(4, 5), [1, 3], [0], [1, 2], [2, 3]), {}),
            # The forward and the three gradients of a bilinear layer.
            *(
                (tuple(t.bfloat16() if torch.is_tensor(t) else t for t in arguments), {})
                for arguments in (
                    (f(4, 3), f(2, 3, 5), f(4, 5), [1, 3], [0], [1, 2], [2, 3]),
                    (f(4, 2), f(2, 3, 5), f(4, 5), [2, 3], [0], [1, 2], [1, 3]),
                    (f(4, 3), f(4, 2), f(4, 5), [1, 3], [2, 3], [1, 2], [0]),
                    (f(4, 3), f(2, 3, 5), f(4, 2), [1, 3], [0], [2, 3], [1, 2]),
                    (f(0, 3), f(2, 3, 5), f(0, 5), [1, 3], [0], [1, 2], [2, 3]),
                    # No product of two has all of the summed axes.
                    (f(4, 3), f(4, 3), f(4, 5), [2], [2], [1], [1]),
                )
            ),
        ],
        "aten._embedding_bag_backward.default": [
            ((dy, index, offsets, bags, sizes, winners, 6, q, m, False, w, p), {})
            for m, (q, w, p) in bag
        ]
        + [((dy, index, offsets, bags[:0], sizes, winners, 6, False, 0, False, None, -1), {})],
        "aten._embedding_bag_dense_backward.default": [
            ((dy, index, bags, sizes, winners, 6, q, m, w, p), {}) for m, (q, w, p) in bag
        ],
        "aten._embedding_bag_per_sample_weights_backward.default": [
            ((dy, f(6, 3, dtype=F64), index, offsets, bags, 0, p), {}) for p in (-1, 2)
        ],
    }


SAMPLES = {
    **rounding(),
    **remainders(),
    **scatters(),
    **reductions(),
    **formulas(),
    **views(),
    **pairs(),
    **grouped(),
}
