"""torchao's products of matrices whose blocks have scales, under torchao's names, by their
definition in plain PyTorch; and samples of them and of PyTorch's.

A block is 1 x 128 elements along the sum, or 128 x 128. Sums are exact where values are whole
numbers and scales powers of two.
"""

import inspect

import torch
from fp8_samples import BF16, E4M3, F32

BLOCK = 128
OF_LINES, OF_SQUARES = 4, 5  # of torch.nn.functional.ScalingType


def _of_places(scales, axis, extent, block):
    if scales.shape[axis] == extent:
        return scales
    return scales.repeat_interleave(block, axis).narrow(axis, 0, extent)


def _scaled(matrix, scales, block):
    for axis in (-2, -1):
        scales = _of_places(scales, axis, matrix.shape[axis], block)
    return matrix.double() * scales


def block_products(a, b, scale_a, scale_b, offs, block=BLOCK):
    """[S, K] x [G, K, N] or [M, S] x [S, N], in float64; rows behind the last group are zeros."""
    a, b = _scaled(a, scale_a, block), _scaled(b, scale_b, block)
    rows, groups = b.dim() == 3, len(offs)
    shape = (a.shape[0], b.shape[-1]) if rows else (groups, a.shape[0], b.shape[-1])
    result, begin = torch.zeros(shape, dtype=torch.float64), 0
    for g, end in enumerate(offs.tolist()):
        if rows:
            result[begin:end] = a[begin:end] @ b[g]
        else:
            result[g] = a[:, begin:end] @ b[begin:end]
        begin = end
    return result


def block_product(a, b, scale_a, scale_b, block=BLOCK):
    return _scaled(a, scale_a, block) @ _scaled(b, scale_b, block)


def gemm(
    a: torch.Tensor, b: torch.Tensor, a_s: torch.Tensor, b_s: torch.Tensor,
    block_size: int = BLOCK, out_dtype: torch.dtype = F32,
) -> torch.Tensor:  # fmt: skip
    return block_product(a, b, a_s, b_s, block_size).to(out_dtype)


def emulated_blockwise_scaled_grouped_mm(
    a: torch.Tensor, b: torch.Tensor, a_s: torch.Tensor, scale_recipe_a: int, b_s: torch.Tensor,
    scale_recipe_b: int, offs: torch.Tensor, out_dtype: torch.dtype, block_size: int = BLOCK,
) -> torch.Tensor:  # fmt: skip
    return block_products(a, b, a_s, b_s, offs, block_size).to(out_dtype)


def blockwise_scaled_mm(
    a: torch.Tensor, b: torch.Tensor, a_s: torch.Tensor, scale_recipe_a: int, b_s: torch.Tensor,
    scale_recipe_b: int, out_dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    columns = b_s if scale_recipe_b == OF_SQUARES else b_s.t()
    return block_product(a, b, a_s, columns).to(out_dtype)


STAND_INS = {
    "triton_fp8_gemm_1x128_128x128": gemm,
    "triton_fp8_gemm_1x128_128x1": gemm,
    "blockwise_scaled_mm": blockwise_scaled_mm,
    "emulated_blockwise_scaled_grouped_mm": emulated_blockwise_scaled_grouped_mm,
}


def _fake(function):
    """Of the shape that it gives, whatever the ends of groups are."""

    def of(a, b, *args):
        more = dict(zip(list(inspect.signature(function).parameters)[2:], args, strict=False))
        groups = more["offs"].shape if "offs" in more and b.dim() == 2 else ()
        dtype = more.get("out_dtype", F32)
        return a.new_empty((*groups, a.shape[0], b.shape[-1]), dtype=dtype)

    return of


for _name, _function in STAND_INS.items():
    if not hasattr(torch.ops.torchao, _name):
        _custom = torch.library.custom_op(f"torchao::{_name}", _function, mutates_args=())
        _custom.register_fake(_fake(_function))


def eighth(*shape):
    """Small whole numbers in fp8."""
    return torch.randint(-4, 5, shape).float().to(E4M3)


def powers(*shape):
    return 2.0 ** torch.randint(-3, 4, shape).float()


def operands(m, n, k, row_blocks=False, column_blocks=False, block=BLOCK):
    """a [m, k] by rows, b [k, n] by columns, and scales of their blocks."""

    def blocks(extent):
        return -(-extent // block)

    rows, columns = blocks(m) if row_blocks else m, blocks(n) if column_blocks else n
    scales = powers(blocks(k), rows).t(), powers(blocks(k), columns)
    return eighth(m, k), eighth(n, k).t(), *scales


def _filled_up(scale):
    """[K / 128, ..] of squares as _scaled_mm_v2 takes it: rows up to a multiple of four, by
    columns."""
    behind = torch.full((-len(scale) % 4, scale.shape[1]), torch.nan)
    return torch.cat([scale, behind]).t().contiguous().t()


def second_version(a, b, scale_a, scale_b):
    """Arguments of _scaled_mm_v2, by the shapes of the scales."""
    squares = len(scale_a) != len(a), scale_b.shape[1] != b.shape[1]
    scale_a = _filled_up(scale_a.t()) if squares[0] else scale_a
    scale_b = _filled_up(scale_b) if squares[1] else scale_b.t()
    recipes = [OF_SQUARES if s else OF_LINES for s in squares]
    return a, b, [scale_a], recipes[:1], [], [scale_b], recipes[1:], [], None


def _samples():
    torch.manual_seed(4)
    both, squares, turned = (
        operands(40, 48, 384, *kinds) for kinds in ((), (False, True), (True, False))
    )
    part = operands(20, 24, 40, False, True, 16)
    first, second = "aten._scaled_mm.default", "aten._scaled_mm_v2.default"
    kwargs = {"out_dtype": BF16}
    samples = {
        first: [(x, kwargs, block_product(*x).to(BF16), 0) for x in (both, squares, turned)],
        second: [
            ((*second_version(*x), BF16), {}, block_product(*x).to(BF16), 0)
            for x in (both, squares, turned)
        ],
    }
    a, _, of_a, _ = operands(40, 48, 384)
    b, of_b = eighth(3, 48, 384).mT, powers(3, 3, 1)
    x, y, of_x, of_y = operands(40, 48, 256)
    offs, sums = (torch.tensor(e, dtype=torch.int32) for e in ([5, 5, 33], [5, 130, 200]))
    torchao = {
        "triton_fp8_gemm_1x128_128x128": [squares, (*part, 16, BF16)],
        "triton_fp8_gemm_1x128_128x1": [both],
        "blockwise_scaled_mm": [
            (*squares[:3], OF_LINES, squares[3], OF_SQUARES, BF16),
            (*both[:3], OF_LINES, both[3].t(), OF_LINES, BF16),
        ],
        "emulated_blockwise_scaled_grouped_mm": [
            (a, b, of_a, OF_LINES, of_b, OF_SQUARES, offs, BF16),
            (x, y, of_x, OF_LINES, of_y, OF_LINES, sums, F32),
        ],
    }
    for name, given in torchao.items():
        samples[f"torchao.{name}.default"] = [(args, {}) for args in given]
    return samples


SAMPLES = _samples()
