"""Every row of the table, on its own: the translated op computes what PyTorch's op does.

SAMPLES has an entry a row, with those of row_samples.py, image_samples.py, cell_samples.py,
fp8_samples.py, fp8_block_samples.py and block_product_samples.py; a row without one fails
test_every_row_has_a_sample.
"""

import block_product_samples
import cell_samples
import fp8_block_samples
import fp8_samples
import image_samples
import pytest
import retrograd
import row_samples
import single_op
import torch
from row_samples import INF, bools, f, ints, positive
from retrograd import aten_table, errors, translate  # noqa: F401  translate registers all rows

F32, BF16, I64 = torch.float32, torch.bfloat16, torch.int64


def unary(make=f):
    return [((make(3, 5),), {}), ((make(3, 5, dtype=BF16),), {}), ((make(),), {})]


def binary(*numbers):
    """Broadcasting, mixed dtypes, a 0-d tensor, and numbers."""
    samples = [
        ((f(3, 5), positive(5)), {}),
        ((f(3, 5, dtype=BF16), positive(3, 1, dtype=BF16)), {}),
        ((f(3, 5, dtype=BF16), positive(3, 5)), {}),
        ((f(3, 5, dtype=BF16), positive()), {}),
    ]
    return samples + [((f(4, 3, dtype=d), n), {}) for n in numbers for d in (F32, BF16)]


def scalar(*numbers):
    return [((f(4, 3, dtype=d), n), {}) for n in numbers for d in (F32, BF16)]


def comparison(second):
    return [((ints(4, 6), second), {}), ((ints(4, 6).float(), second), {})]


def creation(*args, dtype=F32, **more):
    return [(args, {"dtype": dtype, **more})]


def norm_arguments(dtype):
    x, weight = f(4, 6, dtype=dtype), f(6, dtype=dtype)
    return x, weight, f(4, 6, dtype=dtype)


def rms_samples():
    x, weight, dy = norm_arguments(F32)
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    xhat, g = x * rstd, dy * weight
    dx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True))
    return [((dy, x, [6], rstd, weight, [True, True]), {}, (dx, (dy * xhat).sum(0)))]


def layer_norm_samples():
    x, weight, dy = norm_arguments(F32)
    y, mean, rstd = torch.native_layer_norm(x, [6], weight, weight, 1e-5)
    flat = f(2, 3, 4)
    _, mean2, rstd2 = torch.native_layer_norm(flat, [3, 4], None, None, 1e-5)
    dx2, _, _ = torch.ops.aten.native_layer_norm_backward(
        flat.sin(), flat, [3, 4], mean2, rstd2, None, None, [True, False, False]
    )
    return [
        ((dy, x, [6], mean, rstd, weight, weight, [True, True, True]), {}),
        ((flat.sin(), flat, [3, 4], mean2, rstd2, None, None, [True, False, False]), {},
         (dx2, None, None)),
    ]  # fmt: skip


def attention(heads, kv_heads, bias=None, causal=True, scale=None, keys=7, dtype=F32):
    """dO, Q, K, V, O, log-sum-exp and the expected (dQ, dK, dV), with a bias its gradient too, by
    definition, in float64."""
    q = f(2, heads, 7, 8).double().requires_grad_()
    k, v = (f(2, kv_heads, keys, 8).double().requires_grad_() for _ in range(2))
    wide_k, wide_v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    scores = (8**-0.5 if scale is None else scale) * q @ wide_k.mT
    if bias is not None:
        bias = bias.double().requires_grad_()
        scores = scores + bias
    if causal:
        scores = scores.masked_fill(~torch.ones(7, keys).tril().bool(), -INF)
    lse, o = scores.logsumexp(-1), scores.softmax(-1) @ wide_v
    do = f(*o.shape).double()
    leaves = (q, k, v) if bias is None else (q, k, v, bias)
    gradients = torch.autograd.grad(o, leaves, do)
    tensors = [t.detach().to(dtype).contiguous() for t in (do, q, k, v, o)]
    return tensors, lse.detach().float(), tuple(g.to(dtype) for g in gradients)


def flash_cpu_samples():
    bias = f(2, 4, 7, 7)
    plain, lse, results = attention(4, 4)
    grouped, grouped_lse, grouped_results = attention(4, 2, scale=0.3)
    biased, biased_lse, biased_results = attention(4, 4, bias, causal=False)
    return [
        ((*plain, lse, 0.0, True), {}, results),
        ((*grouped, grouped_lse, 0.0, True), {"scale": 0.3}, grouped_results),
        ((*biased, biased_lse, 0.0, False), {"attn_mask": bias}, biased_results[:3]),
    ]


def flash_samples():
    tensors, lse, results = attention(4, 2)
    seed, offset = torch.tensor([3, 4], dtype=torch.uint64), torch.empty(0, dtype=torch.uint64)
    rest = (None, None, 7, 7, 0.0, True, seed, offset)
    return [((*tensors, lse, *rest), {"scale": 8**-0.5}, results)]


def efficient_samples():
    """The log-sum-exp is padded to a multiple of 32 with infinities. A bias that is the same for
    all heads has the sum of their scores' gradients."""
    seed, samples = torch.zeros((), dtype=I64), []
    for shape, learned in [((2, 4, 7, 7), False), ((2, 4, 7, 7), True), ((2, 1, 7, 7), True)]:
        bias = f(*shape)
        (do, q, k, v, o), lse, results = attention(4, 4, bias, causal=False)
        padded = torch.full((2, 4, 32), INF)
        padded[..., :7] = lse
        rest = (padded, seed, seed, 0.0, [True, True, True, learned], False)
        expected = (*results[:3], results[3] if learned else None)
        samples.append(((do, q, k, v, bias, o, *rest), {}, expected))
    return samples


def cudnn_samples():
    """The log-sum-exp has a last axis of 1."""
    tensors, lse, results = attention(4, 2, scale=0.2)
    seed = torch.zeros((), dtype=I64)
    rest = (seed, seed, None, None, None, 7, 7, 0.0, True)
    return [((*tensors, lse[..., None], *rest), {"scale": 0.2}, results)]


X34, X345 = f(3, 4), f(3, 4, 5)
SAMPLES = {
    **{f"aten.{n}.default": unary() for n in "neg abs sign relu exp tanh sigmoid sin cos".split()},
    **{f"aten.{n}.default": unary() for n in "erf square".split()},
    **{f"aten.{n}.default": unary(positive) for n in "sqrt rsqrt reciprocal log log1p".split()},
    "aten.mul.Tensor": [*binary(0.3, 2), ((bools(3, 4), bools(4)), {}), ((ints(3), 2.5), {})],
    "aten.mul.Scalar": scalar(0.1, 3),
    "aten.add.Tensor": [*binary(0.7), ((X34, X34), {"alpha": 0.5}), ((X34, 2), {"alpha": 3})],
    "aten.add.Scalar": scalar(1, 0.1),
    "aten.sub.Tensor": [*binary(0.7), ((X34, X34), {"alpha": 2})],
    "aten.sub.Scalar": scalar(1, 0.1),
    "aten.rsub.Tensor": binary(),
    "aten.rsub.Scalar": scalar(1, 0.1),
    "aten.div.Tensor": [*binary(30, 0.3), ((ints(3, 4), 3), {}), ((ints(3), positive()), {})],
    "aten.div.Scalar": scalar(64, 0.3),
    "aten.maximum.default": [((X34, f(4)), {})],
    "aten.minimum.default": [((X34, f(4)), {})],
    "prims.fma.default": [((X34, f(3, 4), f(3, 4)), {})],
    "aten.addcmul.default": [((X34, X34, f(3, 4)), {"value": 0.5})],
    "aten.addcdiv.default": [((X34, X34, positive(3, 4)), {"value": 0.5})],
    "aten.pow.Tensor_Scalar": [
        ((positive(3, 4, dtype=d), e), {})
        for e in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 1.7, -3)
        for d in (F32, BF16)
    ],
    "aten.pow.Tensor_Tensor": [((positive(3, 4), f(4)), {})],
    "aten.pow.Scalar": [((1.7, X34), {})],
    "aten.clamp_min.default": scalar(0.1),
    "aten.clamp_min.Tensor": [((X34, f(4)), {})],
    "aten.clamp_max.default": scalar(0.1),
    "aten.clamp_max.Tensor": [((X34, f(4)), {})],
    "aten.clamp.default": [((X34, -0.5, 0.5), {}), ((X34, None, 0.5), {}), ((X34, -0.5), {})],
    "aten.clamp.Tensor": [((X34, f(4) - 2, f(4) + 2), {})],
    "aten.isnan.default": [((torch.tensor([1.0, float("nan"), INF]),), {})],
    "aten.isinf.default": [((torch.tensor([1.0, float("nan"), INF, -INF]),), {})],
    **{f"aten.{n}.Scalar": comparison(2) for n in "eq ne lt le gt ge".split()},
    **{f"aten.{n}.Tensor": comparison(ints(6)) for n in "eq ne lt le gt ge".split()},
    **{f"aten.logical_{n}.default": [((bools(3, 4), ints(4)), {})] for n in ("and", "or")},
    "aten.logical_not.default": [((bools(3, 4),), {}), ((ints(5),), {})],
    **{f"aten.bitwise_{n}.Tensor": [((bools(3, 4), bools(4)), {})] for n in ("and", "or")},
    "aten.bitwise_xor.Tensor": [((bools(3, 4), bools(4)), {})],
    "aten.logical_xor.default": [((bools(3, 4), ints(4, high=2)), {})],
    "aten.bitwise_not.default": [((bools(3, 4),), {}), ((ints(5),), {})],
    "aten.where.self": [((bools(3, 4), X34, f(4)), {}), ((bools(3, 4), X34.bfloat16(), f()), {})],
    "aten.where.ScalarOther": [((bools(3, 4), X34, 0.5), {}), ((bools(3, 4), X34, -INF), {})],
    "aten.where.ScalarSelf": [((bools(3, 4), 0.5, X34), {})],
    "aten.where.Scalar": [((bools(3, 4), 0.5, 1.5), {})],
    "aten.masked_fill.Scalar": [((X34, bools(3, 4), -INF), {})],
    "aten.masked_fill.Tensor": [((X34, bools(4), torch.tensor(0.3)), {})],
    "prims.convert_element_type.default": [((X34, BF16), {}), ((bools(4), F32), {})],
    "aten._to_copy.default": [((X34,), {"dtype": BF16}), ((ints(4),), {"dtype": F32})],
    "aten.full.default": [(([2, 3], 0.1), {"dtype": BF16}), (([], -INF), {"dtype": F32})],
    "aten.full_like.default": [((X34, 2), {})],
    "aten.new_full.default": [((X34, [2], 2), {})],
    "aten.zeros.default": creation([2, 3]),
    "aten.zeros_like.default": [((ints(3),), {})],
    "aten.new_zeros.default": [((X34, [2]), {})],
    "aten.ones.default": creation([2, 3], dtype=torch.bool),
    "aten.ones_like.default": [((X34,), {"dtype": BF16})],
    "aten.new_ones.default": [((X34, [2]), {})],
    "aten.scalar_tensor.default": creation(0, dtype=I64),
    "prims.iota.default": creation(
        6, start=2, step=3, dtype=I64, device=torch.device("cpu"), requires_grad=False
    ),
    "aten.arange.default": creation(6, dtype=I64),
    "aten.arange.start": creation(2, 6, dtype=F32),
    "aten.arange.start_step": creation(2, 9, 3, dtype=I64),
    **{f"aten.{n}.default": [((X34,), {})] for n in "alias clone detach lift_fresh".split()},
    "aten.contiguous.default": [((X34.t(),), {})],
    "aten.lift_fresh_copy.default": [((X34,), {})],
    "aten.copy.default": [((X34, f(4).bfloat16()), {})],
    "aten.sum.dim_IntList": [
        ((X345, [0, -1]), {}), ((X345, [1], True), {}), ((X345, None), {}), ((X345, []), {}),
        ((X345.bfloat16(), [1]), {"dtype": F32}), ((bools(3, 4), [0]), {}), ((f(), []), {}),
    ],
    "aten.sum.default": [((X345,), {}), ((ints(3),), {})],
    "aten.mean.dim": [((X345, [1, 2], True), {}), ((X345.bfloat16(), [-1]), {})],
    "aten.mean.default": [((X345,), {})],
    "aten.var_mean.correction": [
        ((X345, [1, 2]), {"correction": 0, "keepdim": True}), ((X345, [-1]), {"correction": 1}),
    ],
    "aten.amax.default": [((X345, [1], True), {}), ((X345,), {})],
    "aten.amin.default": [((X345, [-1]), {})],
    "aten.mm.default": [((f(3, 4), f(4, 5)), {})],
    "aten.bmm.default": [((f(2, 3, 4), f(2, 4, 5)), {})],
    "aten.mm.dtype": [((a := f(3, 4, dtype=BF16), b := f(4, 5, dtype=BF16), F32), {},
                       a.float() @ b.float())],
    "aten.bmm.dtype": [((c := f(2, 3, 4, dtype=BF16), d := f(2, 4, 5, dtype=BF16), F32), {},
                        c.float() @ d.float())],
    "aten.mv.default": [((f(3, 4), f(4)), {})],
    "aten.addmm.default": [((f(5), f(3, 4), f(4, 5)), {"beta": 0.5, "alpha": 2}),
                           ((f(3, 5), f(3, 4), f(4, 5)), {"beta": 0})],
    "aten.baddbmm.default": [((f(2, 3, 5), f(2, 3, 4), f(2, 4, 5)), {})],
    "aten.view.default": [((X345, [12, -1]), {}), ((X345, [3, 4, 5]), {})],
    "aten._unsafe_view.default": [((X345, [60]), {})],
    "aten.reshape.default": [((X345, [4, 15]), {})],
    "aten.squeeze.default": [((f(1, 3, 1),), {})],
    "aten.squeeze.dim": [((f(1, 3, 1), 2), {}), ((f(1, 3, 1), 1), {})],
    "aten.squeeze.dims": [((f(1, 3, 1), [0, 2]), {})],
    "aten.unsqueeze.default": [((X34, -1), {})],
    "aten.flatten.using_ints": [((X345, 1), {})],
    "aten.permute.default": [((X345, [2, 0, 1]), {}), ((X345, [0, -1, 1]), {})],
    "aten.t.default": [((X34,), {}), ((f(3),), {})],
    "aten.transpose.int": [((X345, 0, -1), {})],
    "aten.expand.default": [((f(3, 1), [2, 3, 4]), {}), ((X34, [-1, 4]), {})],
    "aten.slice.Tensor": [
        ((X345, 1, 1, 3), {}), ((X345, 2, -3, 2**63 - 1, 2), {}), ((X345, 0, 2, 1), {}),
        ((X345,), {}), ((X345, 1, 3, 1), {}),
    ],
    "aten.select.int": [((X345, 1, 2), {}), ((X345, -1, -2), {})],
    "aten.split.Tensor": [((X345, 3, 2), {})],
    "aten.split_with_sizes.default": [((X345, [1, 3], 1), {})],
    "aten.unbind.int": [((X345, 1), {})],
    "aten.flip.default": [((X345, [0, -1]), {})],
    "prims.rev.default": [((X345, [1]), {})],
    "aten.constant_pad_nd.default": [
        ((X34, [1, 2, 0, 3], 0.5), {}), ((X34, [-1, 2]), {}), ((X34, [-1, -1, -1, 0]), {}),
    ],
    "aten.cat.default": [
        (([f(2, 3), f(1, 3)],), {}), (([f(2, 3), f(2, 1)], -1), {}), (([f(0), f(2, 3)],), {}),
        (([f(2, 3), ints(2, 3)],), {}),
    ],
    "aten.stack.default": [(([X34, f(3, 4)], -1), {}), (([X34, f(3, 4)],), {})],
    "aten.slice_scatter.default": [
        ((X345, f(3, 2, 5), 1, 1, 3), {}), ((X345, f(3, 4, 2), 2, 0, 4, 2), {}),
        ((X345, f(3, 4, 5)), {}), ((X345, f(3, 1, 5), 1, -1, 2**63 - 1), {}),
    ],
    "aten.select_scatter.default": [((X345, f(3, 5), 1, -1), {}), ((f(3, 1), f(3), 1, 0), {})],
    "aten.index.Tensor": [
        ((f(5, 4), [ints(2, 3) - 2]), {}), ((X345, [None, ints(6, high=4)]), {}),
        ((X345, [ints(2, high=3), ints(2, high=4)]), {}),
        ((X345, [ints(2, 1, high=3), None, ints(2, high=5)]), {}),
        ((X345, [None, ints(2, high=4), ints(2, high=5)]), {}),
    ],
    "aten._unsafe_index.Tensor": [((f(5, 4), [ints(2, 3)]), {})],
    "aten.index_put.default": [
        ((f(5, 4), [ints(7)], f(7, 4), True), {}), ((f(5, 4), [ints(2, 3)], f(4), True), {}),
        ((X345, [None, ints(6, high=4) - 4], f(3, 6, 5), True), {}),
        ((X345, [ints(2, 1, high=3), None, ints(2, high=5)], f(2, 2, 4), True), {}),
        ((X34, [bools(3, 4)], torch.tensor(0.5)), {}), ((X34, [bools(3)], torch.tensor(0.5)), {}),
        ((X34, [bools(3)], torch.tensor([0.5]), True), {}),
        ((X34, [torch.tensor([2, -3])], f(2, 4)), {}), ((X34, [ints(5, high=3)], f()), {}),
        ((X345, [None, torch.tensor([1, 3])], f(1)), {}),
    ],
    "aten._unsafe_index_put.default": [((f(5, 4), [ints(7)], f(7, 4), True), {})],
    "aten.index_select.default": [((X345, 1, ints(6, high=4)), {})],
    "aten.embedding.default": [((f(5, 4), ints(2, 3)), {})],
    "aten.index_add.default": [((X34, 1, ints(6, high=4), f(3, 6)), {"alpha": 0.5})],
    "aten.gather.default": [((X34, 1, ints(3, 6, high=4)), {}), ((X34, 0, ints(2, 3, high=3)), {})],
    "aten.gelu_backward.default": [((f(3, 4), X34), {"approximate": a}) for a in ("none", "tanh")],
    "aten.silu_backward.default": [((f(3, 4), X34), {}),
                                   ((f(4, dtype=BF16), f(4, dtype=BF16)), {})],
    "aten.threshold_backward.default": [((f(3, 4), X34, 0), {}), ((f(3, 4), X34, 0.5), {})],
    "aten.tanh_backward.default": [((f(3, 4), X34.tanh()), {})],
    "aten.sigmoid_backward.default": [((f(3, 4), X34.sigmoid()), {})],
    "aten._softmax_backward_data.default": [((f(3, 4, 5), X345.softmax(a), a, F32), {})
                                            for a in (1, -1)],
    "aten._log_softmax_backward_data.default": [((f(3, 4, 5), X345.log_softmax(a), a, F32), {})
                                                for a in (0, 2)],
    "aten._fused_rms_norm_backward.default": rms_samples(),
    "aten.native_layer_norm_backward.default": layer_norm_samples(),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": flash_cpu_samples(),
    "aten._scaled_dot_product_flash_attention_backward.default": flash_samples(),
    "aten._scaled_dot_product_efficient_attention_backward.default": efficient_samples(),
    "aten._scaled_dot_product_cudnn_attention_backward.default": cudnn_samples(),
}  # fmt: skip

def pool_offsets():
    offsets = ints(2, 3, 4, 4, high=4, dtype=torch.int8)
    return (offsets, (2, 2), (9, 9), (2, 2), (0, 0), (1, 1)), {}


def max_pool():
    x, window = f(2, 3, 9, 8), ((3, 2), (2, 2), (1, 1), (1, 1), False)
    y, index = torch.ops.aten.max_pool2d_with_indices(x, *window)
    return (torch.randn_like(y), x, *window, index), {}


def average(dims):
    x, window = f(2, 3, *[6] * dims), ([3] * dims, [2] * dims, [1] * dims, False, False, None)
    y = getattr(torch.ops.aten, f"avg_pool{dims}d")(x, *window)
    return (torch.randn_like(y), x, *window), {}


SAMPLES |= row_samples.SAMPLES | image_samples.SAMPLES | fp8_samples.SAMPLES
SAMPLES |= fp8_block_samples.SAMPLES | cell_samples.SAMPLES
for _name, _more in block_product_samples.SAMPLES.items():
    SAMPLES[_name] = [*SAMPLES.get(_name, []), *_more]
# What test_convolutions.py and test_pools.py look at from all sides.
SAMPLES |= {
    "aten.convolution.default": [
        ((f(2, 4, 7), f(6, 2, 3), f(6), [2], [1], [1], False, [0], 2), {}),
        ((f(2, 4, 5), f(4, 3, 3), None, [1], [0], [2], True, [1], 1), {}),
    ],
    "aten.convolution_backward.default": [
        ((f(2, 6, 3), f(2, 4, 7), f(6, 2, 3), [6], [2], [0], [1], False, [0], 2, [True] * 3), {})
    ],
    "prims._low_memory_max_pool_offsets_to_indices.default": [pool_offsets()],
    "prims._low_memory_max_pool_with_offsets.default": [
        ((ints(2, 3, 9, 8).to(d), (3, 2), (2, 3), (1, 1), (1, 2), ceil), {})
        for d in (F32, I64) for ceil in (False, True)
    ],
    "aten.max_pool2d_with_indices_backward.default": [max_pool()],
    **{
        f"aten.avg_pool{n}d.default": [
            ((f(2, 3, *[6] * n), [3], [2], [1], *more), {})
            for more in ((), (True, False), (False, True, 5))
        ] for n in (2, 3)
    },
    "aten.avg_pool2d_backward.default": [average(2)],
    "aten.avg_pool3d_backward.default": [average(3)],
    "aten.as_strided.default": [((f(2, 12), (2, 3, 4), (12, 1, 3), 0), {})],
    "aten.as_strided_scatter.default": [((f(2, 12), f(2, 12), (2, 12), (12, 1), 0), {})],
    "aten.cumsum.default": [((f(3, 5), 1), {}), ((ints(4, dtype=torch.int32), 0), {})],
}


@pytest.mark.parametrize(("start", "inside"), [(0, True), (1, False)])
def test_as_strided_reads_its_own_tensor_alone(start, inside):
    arguments = (f(7), (2,), (6,), start)  # elements start and start + 6 of 7
    if inside:
        single_op.check("aten.as_strided.default", arguments, {})
        return
    with pytest.raises(errors.ExportError, match="another tensor"):
        single_op.translate_op("aten.as_strided.default", arguments, results=torch.empty(2))


def test_every_row_has_a_sample():
    assert set(SAMPLES) == set(aten_table.TABLE)


@pytest.mark.parametrize("name", aten_table.TABLE)
def test_a_row_computes_what_pytorch_does(name):
    for sample in SAMPLES[name]:
        single_op.check(name, *sample)


REFUSED = {
    "a mask as an index": ("aten.index.Tensor", (X34, [bools(3)]), "depends on the data"),
    "some bits of integers": ("aten.bitwise_and.Scalar", (ints(3), 5), "& 5 is no power"),
    "bits of integers": ("aten.bitwise_and.Tensor", (ints(3), ints(3)), "integers"),
    "a product of integers": ("aten.mm.default", (ints(3, 4), ints(4, 2)), "torch.int64 matrices"),
    "a convolution of integers": (
        "aten.convolution.default",
        (ints(1, 2, 5), ints(2, 2, 3), None, [1], [0], [1], False, [0], 1), "torch.int64"),
    "a bag's gradient by frequency": (
        "aten._embedding_bag_dense_backward.default",
        (f(1, 2), ints(3), ints(3, high=1), ints(1) + 3, ints(1, 2), 5, True, 0, None), "by_freq"),
    "grouped matmuls without groups": (
        "aten._grouped_mm.default", (f(2, 8, 8), f(2, 8, 8)), "use torch.bmm"),
    "grouped columns": (
        "aten._grouped_mm.default", (f(2, 8, 8), f(8, 8), ints(2, dtype=torch.int32)), "operand of rank 3"),
    "a power of integers": ("aten.pow.Tensor_Tensor", (ints(3), ints(3)), "an integer to the"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_form_without_counterpart_is_refused(case):
    name, args, reason = REFUSED[case]
    with pytest.raises(retrograd.ExportError, match=reason) as refusal:
        single_op.translate_op(name, args)
    assert name in str(refusal.value)


def test_dropout_keeps_the_variant_and_its_seed_and_offset():
    tensors, lse, results = attention(4, 4)
    seed = torch.tensor(5)
    rest = (seed, seed, None, None, None, 7, 7, 0.25, True)
    graph, *_ = single_op.translate_op(
        "aten._scaled_dot_product_cudnn_attention_backward.default",
        (*tensors, lse[..., None], *rest), {}, results,
    )  # fmt: skip
    (node,) = [n for n in graph.nodes if n.op == "attention_backward"]
    operands = [graph.nodes[o.node] for o in node.operands]
    assert [o.op for o in operands[6:]] == ["input", "input"]
    attrs = {a.name: a for a in node.attrs}
    assert (attrs["dropout_p"].f, attrs["variant"].s) == (0.25, "cudnn")
