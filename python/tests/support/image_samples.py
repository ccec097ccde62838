"""Samples of the rows for resampling images and for pools that remember their winners."""

import itertools

import torch
from row_samples import BF16, F64, f, ints
from torch.nn import functional as F

aten = torch.ops.aten


def adaptive():
    """Windows that overlap, and windows of one size."""
    shapes = [((2, 3, 7, 5), (3, 2)), ((2, 3, 8, 6), (4, 3)), ((3, 5, 4), (2, 7))]
    deep = [((2, 3, 7, 5, 4), (3, 2, 3)), ((1, 2, 4, 6, 2), (2, 3, 1))]
    samples = {}
    for dims, cases in ((2, shapes), (3, deep)):
        forward = [((f(*shape, dtype=F64), list(out)), {}) for shape, out in cases]
        backward = [
            ((f(*shape[:-dims], *out, dtype=F64), f(*shape, dtype=F64)), {}) for shape, out in cases
        ]
        samples[f"aten._adaptive_avg_pool{dims}d.default"] = forward
        samples[f"aten._adaptive_avg_pool{dims}d_backward.default"] = backward
        pool = getattr(F, f"adaptive_max_pool{dims}d")
        samples[f"aten.adaptive_max_pool{dims}d_backward.default"] = [
            _winners(f(*shape, dtype=F64), lambda x, out=out: pool(x, out, True))
            for shape, out in cases
        ]
    return samples


def _winners(x, pool, *between):
    y, index = pool(x)
    return (torch.randn_like(y), x, *between, index), {}


def pools():
    x2, x3 = f(2, 3, 9, 8, dtype=F64), f(2, 3, 6, 7, 5, dtype=F64)
    windows = [
        ([3, 2, 2], [2, 2, 1], [1, 1, 0], [1, 1, 2], False),
        ([2], [1], [1], [3], False),  # of the turns of windows most hold no pixel
        ([6, 6, 6], [1, 1, 1], [3, 3, 3], [1, 1, 1], False),  # more terms than a sum has
    ]
    samples = {
        "aten.max_pool3d_with_indices_backward.default": [
            _winners(x3, lambda x: aten.max_pool3d_with_indices(x, *window), *window)  # noqa: B023
            for window in windows
        ]
    }
    for dims, x in ((2, x2), (3, x3)):
        kernel, out = [2] * dims, [3] * dims
        pool = getattr(F, f"fractional_max_pool{dims}d")
        run = lambda x: pool(x, kernel, out, return_indices=True)  # noqa: B023, E731
        samples[f"aten.fractional_max_pool{dims}d_backward.default"] = [
            _winners(x, run, kernel, out)
        ]
    return samples


_SIZES = [(4, 8), (3, 7), (8, 5), (5, 1), (1, 3)]  # of an input and an output


def nearest():
    samples = {}
    for dims in (1, 2, 3):
        cases = [
            (f(2, 3, *[out] * dims, dtype=dtype), [out] * dims, [2, 3, *[n] * dims])
            for (n, out), dtype in itertools.product(_SIZES, (F64, BF16))
        ]
        scaled = (f(2, 3, *[9] * dims, dtype=F64), [9] * dims, [2, 3, *[4] * dims], *[2.3] * dims)
        for name in (f"upsample_nearest{dims}d", f"_upsample_nearest_exact{dims}d"):
            samples[f"aten.{name}_backward.default"] = [(c, {}) for c in (*cases, scaled)]
    return samples


def smooth():
    kinds = {
        "upsample_linear1d": 1, "upsample_bilinear2d": 2, "upsample_trilinear3d": 3,
        "upsample_bicubic2d": 2, "_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 2,
    }  # fmt: skip
    samples = {}
    for name, dims in kinds.items():
        cases = [
            (f(2, 2, *[out] * dims, dtype=F64), [out] * dims, [2, 2, *[n] * dims], corners)
            for (n, out), corners in itertools.product(_SIZES, (False, True))
        ]
        scaled = (f(1, 2, *[9] * dims, dtype=F64), [9] * dims, [1, 2, *[4] * dims], False)
        cases.append((*scaled, *[2.3] * dims))
        samples[f"aten.{name}_backward.default"] = [(c, {}) for c in cases]
        samples[f"aten.{name}.default"] = [
            ((f(2, 2, *size[2:], dtype=F64), out, corners, *rest), {})
            for _, out, size, corners, *rest in cases
        ]
    return samples


def edges():
    samples = {}
    for dims, amounts in ((1, [2, 3]), (2, [1, 2, 0, 3]), (3, [1, 0, 2, 1, 0, 2])):
        cuts = [-n if i % 2 else n for i, n in enumerate(amounts)]
        for mode, op in (("replicate", "replication"), ("reflect", "reflection")):
            cases = []
            for pad in (amounts, cuts):
                x = f(2, 2, *range(5, 5 + dims), dtype=F64)
                y = F.pad(x, pad, mode=mode)
                cases.append(((torch.randn_like(y), x, pad), {}))
            samples[f"aten.{op}_pad{dims}d_backward.default"] = cases
    return samples


def grids():
    """Points inside, on the edges and far outside, in every mode."""
    x, grid = f(2, 3, 4, 5, dtype=F64), f(2, 3, 6, 2, dtype=F64) * 1.3
    grid[0, 0] = torch.tensor([[-1, 1], [1, -1], [0, 0], [7.3, -5.1], [-3, 3], [0.2, -0.6]])
    modes = itertools.product((0, 1, 2), (0, 1, 2), (False, True))
    dy = f(2, 3, 3, 6, dtype=F64)
    cases = [((dy, x, grid, *mode, [True, True]), {}) for mode in modes]
    narrow = (dy[:, :, :1], x[:, :, :1, :1].contiguous(), grid[:, :1])
    cases += [((*narrow, 0, padding, True, [True, True]), {}) for padding in (0, 1, 2)]
    return {
        "aten.grid_sampler_2d_backward.default": cases,
        "aten.grid_sampler_3d_backward.default": _grids_of_volumes(),
    }


def _grids_of_volumes():
    x, grid = f(2, 3, 4, 5, 2, dtype=F64), f(2, 3, 2, 4, 3, dtype=F64) * 1.3
    grid[0, 0, 0] = torch.tensor([[-1, 1, 0], [1, -1, 1], [7.3, -5.1, 0.2], [-3, 3, -0.6]])
    modes = itertools.product((0, 1), (0, 1, 2), (False, True))
    dy = f(2, 3, 3, 2, 4, dtype=F64)
    return [((dy, x, grid, *mode, [True, True]), {}) for mode in modes]


SAMPLES = {**adaptive(), **pools(), **nearest(), **smooth(), **edges(), **grids()}
