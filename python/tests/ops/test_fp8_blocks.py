"""Linear layers whose products have scales of blocks, as DeepSeek-V3 and torchao train them:
exported and run, against the definitions of torchao's ops."""

import block_product_samples
import command
import fp8_block_samples  # noqa: F401  (stands in for torchao's quantisers)
import pytest
import retrograd
import torch
from backend_training import interpreted_forwards
from block_product_samples import OF_LINES, OF_SQUARES
from retrograd.backend import backend
from torch import nn

BF16 = torch.bfloat16


class _OfExperts(torch.autograd.Function):
    """x w^T by groups of rows, whose values are quantised by lines of 128 terms, the experts'
    matrices by squares."""

    @staticmethod
    def forward(ctx, x, w, ends):
        ctx.save_for_backward(x, w, ends)
        fp8 = torch.ops.torchao
        q, s = fp8.triton_fp8_blockwise_act_quant_lhs(x)
        qw, sw = fp8.triton_fp8_blockwise_weight_quant_grouped_transposed_rhs(w.mT)
        return fp8.emulated_blockwise_scaled_grouped_mm(
            q, qw, s, OF_LINES, sw, OF_SQUARES, ends, BF16
        )

    @staticmethod
    def backward(ctx, d):
        x, w, ends = ctx.saved_tensors
        fp8 = torch.ops.torchao
        q, s = fp8.triton_fp8_blockwise_act_quant_lhs(d)
        qw, sw = fp8.triton_fp8_blockwise_weight_quant_grouped_rhs(w.mT)
        dx = fp8.emulated_blockwise_scaled_grouped_mm(
            q, qw, s, OF_LINES, sw, OF_SQUARES, ends, BF16
        )
        qd, sd = fp8.triton_fp8_blockwise_act_quant_transposed_lhs(d)
        qx, sx = fp8.triton_fp8_blockwise_act_quant_rhs(x)
        dw = fp8.emulated_blockwise_scaled_grouped_mm(
            qd, qx, sd, OF_LINES, sx, OF_LINES, ends, BF16
        )
        return dx, dw, None


class _Dense(torch.autograd.Function):
    """x w^T, the input gradient by the second version of _scaled_mm, the weight's by a GEMM of
    torchao's."""

    @staticmethod
    def forward(ctx, x, w, ends):
        ctx.save_for_backward(x, w)
        return x @ w[0].t()

    @staticmethod
    def backward(ctx, d):
        x, w = ctx.saved_tensors
        fp8 = torch.ops.torchao
        q, s = fp8.triton_fp8_blockwise_act_quant_lhs(d)
        qw, sw = fp8.triton_fp8_blockwise_weight_quant_rhs(w[0])
        dx = fp8.blockwise_scaled_mm(q, qw, s, OF_LINES, sw, OF_SQUARES, BF16)
        qd, sd = fp8.triton_fp8_blockwise_act_quant_transposed_lhs(d)
        qx, sx = fp8.triton_fp8_blockwise_act_quant_rhs(x)
        dw = fp8.triton_fp8_gemm_1x128_128x1(qd, qx, sd, sx, 128, BF16)
        return dx, dw[None], None


class Linear(nn.Module):
    def __init__(self, product, groups, width, results):
        super().__init__()
        self.product = product
        self.w = nn.Parameter((0.1 * torch.randn(groups, results, width)).bfloat16())

    def forward(self, x, ends, target):
        return (self.product.apply(x, self.w, ends).float() * target).sum()


CASES = {  # name: (product, rows, width, results, ends)
    "dense": (_Dense, 144, 160, 136, [144]),
    "one": (_OfExperts, 144, 160, 136, [144]),
    "groups_within_blocks": (_OfExperts, 144, 136, 160, [3, 70, 131]),
    "first_and_last_are_empty": (_OfExperts, 48, 256, 128, [0, 17, 48, 48]),
}


def _made(name):
    torch.manual_seed(5)
    product, rows, width, results, ends = CASES[name]
    x, target = torch.randn(rows, width).bfloat16(), torch.randn(rows, results)
    module = Linear(product, len(ends), width, results)
    return module, x.requires_grad_(), torch.tensor(ends, dtype=torch.int32), target


@command.needs_retrograd
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_definitions(tmp_path, name):
    """The quantised values have equal bits, so that only the order of the sums differs."""
    module, *args = _made(name)
    (path,) = retrograd.export_backward(module, tuple(args), {}, tmp_path / "linear", bundle=True)
    command.run_and_check(path, tmp_path / "linear.safetensors", "--spec", "h100")
    plan = command.output("dump", path, "--spec", "h100", "--stage", "plan")
    assert len([n for n in plan.splitlines() if "scaled by blocks of 128" in n]) == 2


@command.needs_retrograd
@pytest.mark.parametrize("name", ["one", "groups_within_blocks"])
def test_a_compiled_layer_gets_its_whole_backward(name):
    torch._dynamo.reset()
    module, x, ends, target = _made(name)
    with interpreted_forwards():
        run = torch.compile(module, backend=backend, options={"require_full": True})
        run(x, ends, target).backward()
    ours = module.w.grad, x.grad
    module.w.grad = x.grad = None
    module(x, ends, target).backward()
    for got, want in zip(ours, (module.w.grad, x.grad), strict=True):
        assert (got.float() - want.float()).norm() <= 3e-3 * want.float().norm()


# m, n, k, whether the rows and the columns are quantised by squares, ends
PRODUCTS = {
    "even": (256, 256, 512, False, True, [128, 256]),
    "odd": (416, 144, 400, False, True, [3, 70, 70, 200, 333]),
    "lines": (416, 144, 400, False, False, [3, 70, 70, 200, 333]),
    "squares_of_rows": (400, 272, 272, True, False, [0, 399, 399]),
    "long": (1040, 1040, 7168, False, True, [1040]),
    "many": (640, 136, 256, False, True, [10 * g for g in range(64)]),
}


@command.needs_retrograd
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees")
@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_on_a_gpu(name, sums):
    """Whole numbers and powers of two: the sums are exact, whoever adds them up."""
    m, n, k, row_blocks, column_blocks, ends = PRODUCTS[name]
    torch.manual_seed(2)
    a, b, of_a, of_b = block_product_samples.operands(
        *((k, n, m) if sums else (m, n, k)), row_blocks, column_blocks
    )
    if not sums:
        b = torch.stack([b.t()] * len(ends)).mT
        of_b = torch.stack([of_b * 2 ** (g % 3) for g in range(len(ends))])
    ends = torch.tensor(ends, dtype=torch.int32)
    wanted = block_product_samples.block_products(a, b, of_a, of_b, ends)
    got = _product_on_the_gpu(a, b, of_a, of_b, ends)
    assert (got.double().cpu() - wanted).norm() <= 1e-6 * wanted.norm()


class _Made(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *factors):
        ctx.save_for_backward(*factors)
        return x.clone()

    @staticmethod
    def backward(ctx, d):
        a, b, of_a, of_b, ends = ctx.saved_tensors
        product = torch.ops.torchao.emulated_blockwise_scaled_grouped_mm(
            a, b, of_a * d.flatten()[0], OF_LINES, of_b, OF_SQUARES, ends, torch.float32
        )
        return product, *[None] * 5


def _product_on_the_gpu(a, b, of_a, of_b, ends):
    torch._dynamo.reset()
    factors = [t.cuda() for t in (a, b, of_a, of_b, ends)]
    shape = (len(a), b.shape[-1]) if b.dim() == 3 else (len(ends), len(a), b.shape[-1])
    x = torch.zeros(shape, device="cuda", requires_grad=True)
    run = torch.compile(
        lambda x, *f: _Made.apply(x, *f), backend=backend, options={"require_full": True}
    )
    (got,) = torch.autograd.grad(run(x, *factors), [x], torch.ones(shape, device="cuda"))
    return got
