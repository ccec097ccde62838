"""Products of scaled matrices of groups, and torchao's quantisers under torchao's names, by their
definitions in plain PyTorch; and samples of both.

Scales are rounded down to powers of two exactly; rows behind the last group are zeros.
"""

import torch

F32, BF16, E4M3, E5M2 = torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2


def scale_of(largest, dtype, power_of_two):
    scale = (torch.finfo(dtype).max / largest.double().clamp(min=1e-12)).float()
    if not power_of_two:
        return scale
    power = torch.ldexp(torch.full_like(scale, 0.5), torch.frexp(scale).exponent)
    return torch.where(torch.isfinite(scale) & (scale != 0), power, scale)


def quantised(x, scale, dtype):
    most = torch.finfo(dtype).max
    return (x.float() * scale).clamp(-most, most).to(dtype)


def _lines(x, axis, dtype, power_of_two):
    scale = scale_of(x.abs().amax(axis, keepdim=True), dtype, power_of_two)
    return quantised(x, scale, dtype), scale


def _columns_of_groups(x, ends, dtype, power_of_two):
    """[S, N] by columns, [G, N]."""
    y = torch.zeros(x.shape[::-1], dtype=F32).t()
    scales, begin = [], 0
    for end in ends.tolist():
        rows = x[begin:end]
        largest = rows.abs().amax(0) if len(rows) else x.new_zeros(x.shape[1])
        scales.append(scale_of(largest, dtype, power_of_two))
        y[begin:end] = quantised(rows, scales[-1], dtype).float()
        begin = end
    return y.to(dtype), torch.stack(scales)


def rows(
    x: torch.Tensor, output_dtype: torch.dtype = E4M3, round_scales_to_power_of_2: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return _lines(x, 1, output_dtype, round_scales_to_power_of_2)


def columns_of_experts(
    x: torch.Tensor, output_dtype: torch.dtype = E4M3, round_scales_to_power_of_2: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return _lines(x, 1, output_dtype, round_scales_to_power_of_2)


def transposed_experts(
    x: torch.Tensor, output_dtype: torch.dtype = E4M3, round_scales_to_power_of_2: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    y, scale = _lines(x, 2, output_dtype, round_scales_to_power_of_2)
    return y.contiguous().mT, scale[..., 0].contiguous()


def rows_of_groups(
    x: torch.Tensor, offsets: torch.Tensor, output_dtype: torch.dtype = E4M3,
    round_scales_to_power_of_2: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    y, scales = _columns_of_groups(x.t(), offsets, output_dtype, round_scales_to_power_of_2)
    return y.t().contiguous(), scales.flatten()


def columns_of_groups(
    x: torch.Tensor, offsets: torch.Tensor, output_dtype: torch.dtype = E4M3,
    round_scales_to_power_of_2: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    y, scales = _columns_of_groups(x, offsets, output_dtype, round_scales_to_power_of_2)
    return y, scales.flatten()


def columns_of_groups_of_two(
    x: torch.Tensor, z: torch.Tensor, offsets: torch.Tensor, output_dtype: torch.dtype = E4M3,
    round_scales_to_power_of_2: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    more = (offsets, output_dtype, round_scales_to_power_of_2)
    return *columns_of_groups(x, *more), *columns_of_groups(z, *more)


STAND_INS = {
    "triton_fp8_rowwise_2d_scale_and_cast": rows,
    "triton_fp8_colwise_3d_scale_and_cast": columns_of_experts,
    "triton_fp8_rowwise_transpose_rhs": transposed_experts,
    "triton_fp8_rowwise_transpose_rhs_fused": transposed_experts,
    "triton_fp8_per_group_rowwise_scales": rows_of_groups,
    "triton_fp8_per_group_colwise_scales": columns_of_groups,
    "triton_fp8_per_group_colwise_scales_dual": columns_of_groups_of_two,
}


def _like(x, dtype):
    return torch.empty_strided(x.shape, x.stride(), dtype=dtype, device=x.device)


def _columns_like(x, ends, dtype):
    y = x.new_empty(x.shape[::-1], dtype=dtype).t()
    return y, x.new_empty(ends.shape[0] * x.shape[1], dtype=F32)


FAKES = {
    rows: lambda x, d=E4M3, p=False: (_like(x, d), x.new_empty(x.shape[0], 1, dtype=F32)),
    columns_of_experts: lambda x, d=E4M3, p=False: (
        _like(x, d), x.new_empty(x.shape[0], 1, x.shape[2], dtype=F32)),
    transposed_experts: lambda x, d=E4M3, p=False: (
        x.new_empty(x.shape, dtype=d).mT, x.new_empty(x.shape[:2], dtype=F32)),
    rows_of_groups: lambda x, e, d=E4M3, p=False: (
        x.new_empty(x.shape, dtype=d), x.new_empty(e.shape[0] * x.shape[0], dtype=F32)),
    columns_of_groups: lambda x, e, d=E4M3, p=False: _columns_like(x, e, d),
    columns_of_groups_of_two: lambda x, z, e, d=E4M3, p=False: (
        *_columns_like(x, e, d), *_columns_like(z, e, d)),
}  # fmt: skip

if not hasattr(torch.ops.torchao, next(iter(STAND_INS))):
    for name, function in STAND_INS.items():
        custom = torch.library.custom_op(f"torchao::{name}", function, mutates_args=())
        custom.register_fake(FAKES[function])


def _draw(*shape, dtype=BF16):
    return (torch.randn(shape) * torch.rand(shape[-1:]).exp2()).to(dtype)


def _ends(*ends):
    return torch.tensor(ends, dtype=torch.int32)


def _flags(*tensors):
    return [((*tensors, E4M3, True), {}), ((*tensors, E5M2, False), {}), (tensors, {})]


def _samples():
    x, f, experts, ends = _draw(13, 9), _draw(13, 9, dtype=F32), _draw(3, 7, 5), _ends(0, 4, 13)
    samples = {
        rows: _flags(x) + _flags(f),
        columns_of_experts: _flags(experts.mT),
        transposed_experts: _flags(experts) + _flags(experts.mT),
        rows_of_groups: _flags(x.t(), ends) + _flags(f.t().contiguous(), ends),
        columns_of_groups: _flags(x, ends) + _flags(x, ends.long()),
        columns_of_groups_of_two: _flags(x, f, ends),
    }
    return {f"torchao.{name}.default": samples[made] for name, made in STAND_INS.items()}


SAMPLES = _samples()


def scaled_products(a, b, scale_a, scale_b, offs):
    """torch._scaled_grouped_mm by its definition, in float64."""
    groups, rows = len(offs), b.dim() == 3
    scale_b = scale_b.reshape(groups, -1)
    shape = (a.shape[0], b.shape[-1]) if rows else (groups, a.shape[0], b.shape[-1])
    result, begin = torch.zeros(shape, dtype=torch.float64), 0
    for g, end in enumerate(offs.tolist()):
        if rows:
            product = a[begin:end].double() @ b[g].double()
            result[begin:end] = product * scale_a[begin:end, None] * scale_b[g]
        else:
            product = a[:, begin:end].double() @ b[begin:end].double()
            result[g] = product * scale_a.reshape(groups, -1)[g][:, None] * scale_b[g]
        begin = end
    return result


def scaled_grouped_mm(a, b, scale_a, scale_b, offs, *_, **__):
    """What the op of that name gives on a GPU; PyTorch has none for CPUs."""
    return scaled_products(a, b, scale_a, scale_b, offs).bfloat16()


def by_recipe(a, b, scale_a, scale_b, recipe, *more):
    """Arguments of the second version of a scaled product: one recipe of both, no swizzle."""
    return a, b, [scale_a], [recipe], [0], [scale_b], [recipe], [0], *more


def _products():
    """Whole numbers and powers of two: exact."""
    ends = torch.tensor([5, 5, 17], dtype=torch.int32)

    def eighth(*shape):
        return torch.randint(-4, 5, shape).float().to(E4M3)

    def powers(*shape):
        return 2.0 ** torch.randint(-3, 4, shape).float()

    groups = [
        (eighth(24, 32), eighth(3, 16, 32).mT, powers(24), powers(3, 16), ends),
        (eighth(16, 24), eighth(32, 24).t(), powers(48), powers(96), ends),
    ]
    a, b, of_rows, of_columns = eighth(24, 32), eighth(16, 32).t(), powers(24, 1), powers(1, 16)
    whole = (a.float() @ b.float() * of_rows * of_columns).to(BF16)
    return {
        "aten._scaled_grouped_mm.default": [
            (args, {"out_dtype": BF16}, scaled_grouped_mm(*args), 0) for args in groups
        ],
        "aten._scaled_mm.default": [((a, b, of_rows, of_columns), {"out_dtype": BF16}, whole, 0)],
        "aten._scaled_grouped_mm_v2.default": [
            (by_recipe(a, b, of_a, of_b, 1, ends), {"out_dtype": BF16}, scaled_grouped_mm(*args), 0)
            for args in groups
            for a, b, of_a, of_b, ends in [args]
        ],
        "aten._scaled_mm_v2.default": [
            (by_recipe(a, b, of_rows, of_columns, 1, None), {"out_dtype": BF16}, whole, 0)
        ],
    }


SAMPLES |= _products()
