"""What the rows of products of fp8 matrices share."""

import torch

FP8 = (
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
)  # fmt: skip


def plain(call, bias, scale_result):
    """Refuses what the op has no counterpart for."""
    if bias is not None:
        raise call.error("a bias of scaled products has no counterpart; add it to the result")
    if scale_result is not None:
        raise call.error("a scale of the result has no counterpart; multiply the result by it")


def of_one_type(call, a, b):
    """The matrices; those of two fp8 types in bf16, which has all numbers of both."""
    if a.dtype == b.dtype:
        return a, b
    if a.dtype not in FP8 or b.dtype not in FP8:
        raise call.error(f"a product of {a.dtype} and {b.dtype} has no counterpart; take fp8")
    return call.b.cast(a, torch.bfloat16), call.b.cast(b, torch.bfloat16)


def result_type(call, a, out_dtype):
    dtype = out_dtype or a.dtype
    if dtype.itemsize == 1:
        raise call.error(f"a product of {dtype} has no counterpart; name a wider out_dtype")
    return dtype


def of_one_group(call, a, b, scales, block, bias, dtype):
    """[M, K] x [K, N] -> [M, N] as one group's rows; the scales are those of grouped_matmul."""
    out, wide = call.b, torch.float32
    a, b = of_one_type(call, a, b)
    ends, matrices = out.full(a.shape[0], torch.int32, (1,)), out.reshape(b, (1, *b.shape))
    if bias is None:
        return out.grouped_matmul(a, matrices, ends, dtype, scales, block)
    product = out.grouped_matmul(a, matrices, ends, wide, scales, block)
    return out.cast(out.pointwise("add", product, out.cast(bias, wide)), dtype)
