"""Values of eight bits: casts, and products of scaled matrices, beside PyTorch's own."""

import copy

import block_product_samples  # noqa: F401  (stands in for torchao's products)
import command
import pytest
import retrograd
import single_op
import torch
from backend_training import interpreted_forwards
from fp8_samples import by_recipe, scaled_grouped_mm
from retrograd.backend import backend, pieces
from torch import nn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FNUZ = [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def _fp8(*shape, dtype=E4M3):
    """Whole numbers, of which products add up without rounding."""
    return torch.randint(-4, 5, shape).float().to(dtype)


def _scales(*shape):
    return 2.0 ** torch.randint(-3, 4, shape).float()


ENDS = {
    "even": [16, 24, 32],
    "first_and_last_are_empty": [0, 32, 32],
    "all_are_empty": [0, 0, 0],
    "rows_behind_the_last": [5, 6, 29],
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize(
    "types",
    [(E4M3, E4M3), (E5M2, E5M2), (E4M3, E5M2), (E5M2, E4M3), (FNUZ[0], FNUZ[0]), (FNUZ[0], E5M2)],
)
def test_scaled_products_of_groups(name, types):
    ends = torch.tensor(ENDS[name], dtype=torch.int32)
    of_a, of_b = types
    rows = (
        _fp8(32, 48, dtype=of_a), _fp8(3, 16, 48, dtype=of_b).transpose(1, 2), _scales(32),
        _scales(3, 16), ends,
    )  # fmt: skip
    sums = (
        _fp8(16, 32, dtype=of_a), _fp8(48, 32, dtype=of_b).t(), _scales(3 * 16), _scales(3 * 48),
        ends,
    )  # fmt: skip
    for args in (rows, sums):
        kwargs = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
        wanted = scaled_grouped_mm(*args)
        single_op.check("aten._scaled_grouped_mm.default", args, kwargs, wanted, tolerance=0)
        args = by_recipe(*args[:4], 1, ends)
        single_op.check("aten._scaled_grouped_mm_v2.default", args, kwargs, wanted, tolerance=0)


@pytest.mark.parametrize("scales", [((), ()), ((1,), (1, 1)), ((24, 1), (1, 16))])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "types", [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (FNUZ[0], FNUZ[0]), (FNUZ[1], FNUZ[0])]
)
def test_scaled_products(types, scales, bias):
    a, b = _fp8(24, 32, dtype=types[0]), _fp8(16, 32, dtype=types[1]).t()
    scale_a, scale_b = (_scales(*shape) for shape in scales)
    kwargs = {"out_dtype": torch.bfloat16}
    wanted = a.float() @ b.float() * scale_a * scale_b
    if bias:
        kwargs["bias"] = _scales(16).bfloat16()
        wanted = wanted + kwargs["bias"].float()
    args = (a, b, scale_a, scale_b)
    single_op.check("aten._scaled_mm.default", args, kwargs, wanted.bfloat16(), tolerance=0)
    args = by_recipe(*args, int(len(scales[0]) == 2), kwargs.pop("bias", None))
    single_op.check("aten._scaled_mm_v2.default", args, kwargs, wanted.bfloat16(), tolerance=0)


def _refused(name, args, match, **kwargs):
    with pytest.raises(retrograd.ExportError, match=match):
        single_op.translate_op(name, args, kwargs, results=torch.empty(24, 16))


def test_what_has_no_counterpart_is_refused():
    ends = torch.tensor([24], dtype=torch.int32)
    a, b = _fp8(24, 32), _fp8(1, 16, 32).transpose(1, 2)
    grouped, scales = "aten._scaled_grouped_mm.default", (_scales(24), _scales(1, 16))
    _refused(grouped, (a, b, *scales), "groups are of rows")
    _refused(grouped, (a, b, *scales, ends.long()), "cast it to int32")
    _refused(grouped, (a, b, *scales, ends), "a bias of scaled", bias=torch.ones(16))
    _refused(grouped, (a, b, *scales, ends), "a scale of the result", scale_result=torch.ones(1))
    _refused(grouped, (a, b.bfloat16(), *scales, ends), "take fp8")
    _refused(
        "aten._scaled_mm.default", (a.half(), b[0], _scales(24, 1), scales[1]), "take fp8",
        out_dtype=torch.bfloat16,
    )  # fmt: skip
    blocks = (a, b[0], _scales(24, 2), _scales(2, 16))  # of 16 terms: PyTorch has none in fp32
    _refused("aten._scaled_mm.default", blocks, "scales of shapes")
    second, third = (f"aten._scaled_{name}_v2.default" for name in ("mm", "grouped_mm"))
    _refused(second, by_recipe(*blocks, 4, None), "one of each block")
    _refused(second, by_recipe(*blocks, 5, None), "recipes")
    _refused(second, by_recipe(*blocks, 3, None), "recipes")
    turned = *by_recipe(a, b[0], _scales(24, 1), _scales(1, 16), 1, None), torch.bfloat16, [0, 1]
    _refused(second, turned, "recipes")
    _refused(third, by_recipe(a, b, *scales, 0, ends), "recipes")
    emulated = (a, b, _scales(24, 1), 4, _scales(2, 1, 1), 5, ends, torch.bfloat16)
    _refused("torchao.emulated_blockwise_scaled_grouped_mm.default", emulated, "one of each block")
    gemm = (a, b[0], _scales(24, 2), _scales(2, 1), 32)
    _refused("torchao.triton_fp8_gemm_1x128_128x128.default", gemm, "one of each block")


@pytest.mark.parametrize("recipe, shapes", [(4, ((24, 1), (16, 1))), (1, ((24, 1), (1, 16)))])
def test_products_with_scales_of_blocks_are_pytorchs_to_run(recipe, shapes):
    a, b = _fp8(24, 128), _fp8(16, 128).t()
    graph = torch.fx.Graph()

    def given(tensor):
        node = graph.placeholder("x")
        node.meta["val"] = tensor
        return node

    a, b, *scales = (given(x) for x in (a, b, *(_scales(*shape) for shape in shapes)))
    second = single_op.resolve("aten._scaled_mm_v2.default")
    product = graph.call_function(second, by_recipe(a, b, *scales, recipe, None))
    first = graph.call_function(single_op.resolve("aten._scaled_mm.default"), (a, b, *scales))
    for node in (product, first):
        node.meta["val"] = torch.empty(24, 16)
    assert pieces.foreign_ops(graph) == (set() if recipe == 1 else {product, first})


def _quantised(x, axis):
    """The fp8 matrix, and by what it was multiplied: a power of two for each line along the axis."""
    most = x.abs().amax(axis, keepdim=True).float()
    scale = torch.exp2(torch.floor(torch.log2(448 / most.clamp(min=1e-12))))
    return (x.float() * scale).clamp(-448, 448).to(E4M3), scale


class _Linear(torch.autograd.Function):
    """x w^T in fp8, by groups of rows, all three products."""

    @staticmethod
    def forward(ctx, x, w, ends):
        ctx.save_for_backward(x, w, ends)
        (q, s), (qw, sw) = _quantised(x, 1), _quantised(w, 2)
        return torch._scaled_grouped_mm(
            q, qw.transpose(1, 2), s.reciprocal().flatten(), sw.reciprocal().squeeze(2), offs=ends,
            out_dtype=torch.bfloat16, use_fast_accum=True,
        )  # fmt: skip

    @staticmethod
    def backward(ctx, d):
        x, w, ends = ctx.saved_tensors
        groups = len(ends)
        (q, s), (qw, sw) = _quantised(d, 1), _quantised(w, 1)
        dx = torch._scaled_grouped_mm(
            q, qw.transpose(1, 2).contiguous().transpose(1, 2), s.reciprocal().flatten(),
            sw.reciprocal().squeeze(1), offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True,
        )  # fmt: skip
        (qd, sd), (qx, sx) = _quantised(d, 0), _quantised(x, 0)
        dw = torch._scaled_grouped_mm(
            qd.t().contiguous(), qx.t().contiguous().t(),
            sd.reciprocal().expand(groups, -1).flatten(),
            sx.reciprocal().expand(groups, -1).flatten(), offs=ends, out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )  # fmt: skip
        return dx, dw, None


class Linear(nn.Module):
    def __init__(self, groups, width, results):
        super().__init__()
        self.w = nn.Parameter((0.1 * torch.randn(groups, results, width)).bfloat16())

    def forward(self, x, ends, target):
        return (_Linear.apply(x, self.w, ends).float() * target).sum()


@command.needs_retrograd
@pytest.mark.usefixtures("grouped_on_the_host")
@pytest.mark.parametrize("name", ["even", "first_and_last_are_empty"])
def test_a_linear_layer_of_fp8_has_the_gradients_of_its_definition(name):
    """The quantised values have equal bits, so that only the order of the sums differs."""
    torch.manual_seed(5)
    ours = Linear(3, 32, 48)
    eager = copy.deepcopy(ours)
    ends = torch.tensor(ENDS[name], dtype=torch.int32)
    x, target = torch.randn(32, 32).bfloat16(), torch.randn(32, 48)
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    with interpreted_forwards():
        torch.compile(ours, backend=backend, options={"require_full": True})(
            inputs[0], ends, target
        ).backward()
    eager(inputs[1], ends, target).backward()
    for got, want in ((ours.w.grad, eager.w.grad), (inputs[0].grad, inputs[1].grad)):
        assert (got.float() - want.float()).norm() <= 3e-3 * want.float().norm()


class _Rounded(torch.autograd.Function):
    """A gradient that went through fp8."""

    @staticmethod
    def forward(ctx, x, dtype):
        ctx.dtype = dtype
        return x.clone()

    @staticmethod
    def backward(ctx, d):
        return d.to(ctx.dtype).to(d.dtype), None


@command.needs_retrograd
@pytest.mark.parametrize("dtype", [E4M3, E5M2, *FNUZ])
@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16, torch.float16])
def test_casts_have_the_bits_of_pytorch(wide, dtype):
    """Of every value of sixteen bits, and of those beside the middle of two fp8 numbers."""
    upper = torch.arange(65536, dtype=torch.int32)
    if wide == torch.float32:
        lower = torch.tensor([0, 1, 0x7FFF, 0x8000, 0xFFFF], dtype=torch.int32)
        values = ((upper << 16)[:, None] | lower).view(torch.float32).flatten()
    else:
        values = upper.to(torch.int16).view(wide)
    x = torch.zeros_like(values).requires_grad_()
    run = torch.compile(
        lambda x: _Rounded.apply(x, dtype), backend=backend, options={"require_full": True}
    )
    with interpreted_forwards():
        (got,) = torch.autograd.grad(run(x), x, values)
    wanted = values.to(dtype).to(wide)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got.signbit() & ~got.isnan(), wanted.signbit() & ~wanted.isnan())


class _Product(torch.autograd.Function):
    """Zeros, whose gradient is a product of groups times one element of what comes in."""

    @staticmethod
    def forward(ctx, x, a, b, ends, *scales):
        ctx.save_for_backward(a, b, ends, *scales)
        return x.clone()

    @staticmethod
    def backward(ctx, d):
        a, b, ends, *scales = ctx.saved_tensors
        one = d.flatten()[0]
        if not scales:
            return torch._grouped_mm(a * one, b, offs=ends), None, None, None
        of_rows, of_columns = scales
        product = torch._scaled_grouped_mm(
            a, b, of_rows * one.float(), of_columns, offs=ends, out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )  # fmt: skip
        return product, None, None, None, None, None


def _product_of_groups(sizes, sums, dtype, device):
    """Operands that lie along the sum, whose products are exact, and the product."""
    torch.manual_seed(1)
    groups, (m, n, k) = len(sizes), (272, 208, 320)
    places = -(-sum(sizes) // 16) * 16 + 64
    ends = torch.tensor(sizes, device=device).cumsum(0).to(torch.int32)

    def whole(*shape):
        return torch.randint(-4, 5, shape, device=device).float().to(dtype)

    if sums:
        a, b = whole(m, places), whole(n, places).t()
        scales = _scales(groups * m), _scales(groups * n)
    else:
        a, b = whole(places, k), whole(groups, n, k).transpose(1, 2)
        scales = _scales(places), _scales(groups, n)
    scales = [s.to(device) for s in scales]
    ones = [torch.ones_like(s) for s in scales]
    wanted = scaled_grouped_mm(a.cpu(), b.cpu(), *(s.cpu() for s in scales), ends.cpu())
    plain = scaled_grouped_mm(a.cpu(), b.cpu(), *(s.cpu() for s in ones), ends.cpu())
    return (a, b, ends), scales, wanted, plain


UNEVEN = {
    "odd": [131, 1, 0, 250, 33],
    "first_and_last_are_empty": [0, 0, 200, 77, 0],
    "all_are_empty": [0, 0],
    "short": [9, 1, 0, 21, 3, 129],
    "90_groups": [(7 * g) % 45 for g in range(90)],
}


@command.needs_retrograd
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees")
@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("dtype", [E4M3, torch.bfloat16])  # of fp8, PyTorch traces one type
@pytest.mark.parametrize("name", UNEVEN)
def test_groups_along_the_sum_on_a_gpu(name, dtype, sums):
    """Wherever a group begins, and whatever lies before and behind it."""
    torch._dynamo.reset()  # which runs eagerly what it has compiled for too many sizes
    given, scales, scaled, plain = _product_of_groups(UNEVEN[name], sums, dtype, "cuda")
    eight = dtype != torch.bfloat16
    wanted = scaled if eight else plain
    x = torch.zeros(wanted.shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    run = torch.compile(_Product.apply, backend=backend, options={"require_full": True})
    y = run(x, *given, *(scales if eight else ()))
    gradients = [
        torch.autograd.grad(y, x, torch.ones_like(x), retain_graph=True)[0] for _ in range(2)
    ]
    assert torch.equal(*gradients)
    assert torch.equal(gradients[0].cpu(), wanted)
