"""torchao's blockwise quantisers under torchao's names, by their definitions in plain PyTorch; and
samples of them.

Blocks that a matrix ends in have the elements that there are.
"""

import torch
from fp8_samples import E4M3, E5M2, F32, quantised, scale_of

BLOCK = 128


def of_blocks(x, high, wide, dtype):
    """[M, K] in FP8, and the reciprocal scales [M / high, K / wide], rounded up."""
    rows, columns = x.shape
    filled = torch.nn.functional.pad(x.abs(), (0, -columns % wide, 0, -rows % high))
    across, along = filled.shape[0] // high, filled.shape[1] // wide
    scale = scale_of(filled.view(across, high, along, wide).amax((1, 3)), dtype, False)
    of_places = scale.repeat_interleave(high, 0)[:rows].repeat_interleave(wide, 1)[:, :columns]
    y, scales = quantised(x, of_places, dtype), 1 / scale
    return y, scales


def _by_columns(tensor):
    return tensor.mT.contiguous().mT


def rows_of_blocks(
    x: torch.Tensor, block_size: int = BLOCK, dtype: torch.dtype = E4M3
) -> tuple[torch.Tensor, torch.Tensor]:
    y, scales = of_blocks(x, 1, block_size, dtype)
    return y, _by_columns(scales)


def columns_of_blocks(
    x: torch.Tensor, block_size: int = BLOCK, dtype: torch.dtype = E4M3
) -> tuple[torch.Tensor, torch.Tensor]:
    y, scales = of_blocks(x, block_size, 1, dtype)
    return _by_columns(y), scales


def transposed_columns_of_blocks(
    x: torch.Tensor, block_size: int = BLOCK, dtype: torch.dtype = E4M3
) -> tuple[torch.Tensor, torch.Tensor]:
    y, scales = of_blocks(x, block_size, 1, dtype)
    return y.t().contiguous(), scales.clone().t()


def squares(
    x: torch.Tensor, block_size: int = BLOCK, dtype: torch.dtype = E4M3
) -> tuple[torch.Tensor, torch.Tensor]:
    y, scales = of_blocks(x, block_size, block_size, dtype)
    return _by_columns(y), _by_columns(scales)


def transposed_squares(
    x: torch.Tensor, block_size: int = BLOCK, dtype: torch.dtype = E4M3
) -> tuple[torch.Tensor, torch.Tensor]:
    y, scales = of_blocks(x, block_size, block_size, dtype)
    return y.clone().t(), scales.clone().t()


def squares_of_experts(
    x: torch.Tensor, block_size: int = BLOCK, dtype: torch.dtype = E4M3
) -> tuple[torch.Tensor, torch.Tensor]:
    each = [of_blocks(e, block_size, block_size, dtype) for e in x]
    return tuple(_by_columns(torch.stack(part)) for part in zip(*each, strict=True))


def transposed_squares_of_experts(
    x: torch.Tensor, block_size: int = BLOCK, dtype: torch.dtype = E4M3
) -> tuple[torch.Tensor, torch.Tensor]:
    each = [of_blocks(e, block_size, block_size, dtype) for e in x]
    return tuple(torch.stack(part).clone().mT for part in zip(*each, strict=True))


STAND_INS = {
    "act_quant_lhs": rows_of_blocks,
    "act_quant_rhs": columns_of_blocks,
    "act_quant_transposed_lhs": transposed_columns_of_blocks,
    "weight_quant_rhs": squares,
    "weight_quant_transposed_rhs": transposed_squares,
    "weight_quant_grouped_transposed_rhs": squares_of_experts,
    "weight_quant_grouped_rhs": transposed_squares_of_experts,
}


def _fake(function):
    """Of the shapes and strides that the definition gives of zeros."""

    def of(x, block_size=BLOCK, dtype=E4M3):
        results = function(torch.zeros(x.shape), block_size, dtype)
        return tuple(
            torch.empty_strided(r.shape, r.stride(), dtype=r.dtype, device=x.device)
            for r in results
        )

    return of


def _define(name, function):
    if hasattr(torch.ops.torchao, name):
        return
    custom = torch.library.custom_op(f"torchao::{name}", function, mutates_args=())
    custom.register_fake(_fake(function))


NAMES = {f"triton_fp8_blockwise_{name}": function for name, function in STAND_INS.items()}
for _name, _function in NAMES.items():
    _define(_name, _function)


def _samples():
    torch.manual_seed(3)
    x = torch.randn(13, 20).to(torch.bfloat16)
    experts = torch.randn(3, 8, 12).to(torch.bfloat16).mT
    samples = {}
    for name, function in NAMES.items():
        given = experts if "grouped" in name else x
        samples[f"torchao.{name}.default"] = [
            ((given, 4), {}),
            ((given, 4, E5M2), {}),
            ((given.to(F32), 8), {}),
            ((given,), {}),
        ]
    return samples


SAMPLES = _samples()
