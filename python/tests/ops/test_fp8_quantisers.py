"""torchao's quantisers, exported and run on the host device: the bits of their definitions."""

import command
import fp8_block_samples
import fp8_samples
import pytest
import retrograd
import single_op
import torch
from fp8_samples import BF16, E4M3, E5M2, F32
from retrograd import native

GROUPS = "triton_fp8_per_group_colwise_scales"


def run(name, *arguments):
    """What the exported op gives on the host device, and what its definition does."""
    graph, spans, wanted = single_op.translate_op(f"torchao.{name}.default", arguments)
    for output, want in zip(graph.outputs, wanted, strict=True):
        output.strides.extend(want.stride())
    made = native.Executable(native.Graph.deserialize(graph.SerializeToString()), native.Device())
    given = [spans[n] for n in sorted(spans)]
    results = [torch.empty_strided(w.shape, w.stride(), dtype=w.dtype) for w in wanted]
    made.run(given, results)
    return results, wanted


def assert_same(got, want):
    """Bit for bit, but for the kind of a NaN."""
    assert got.dtype == want.dtype and got.shape == want.shape
    g, w = got.float(), want.float()
    nan = w.isnan()
    assert torch.equal(g.isnan(), nan)
    assert torch.equal(g[~nan], w[~nan])


def check(name, *arguments, last=None):
    """last: the rows in groups; the definition says nothing of those behind them."""
    for got, want in zip(*run(name, *arguments), strict=True):
        if last is not None and want.dim() == 2:
            got, want = got[:last], want[:last]
        assert_same(got, want)


def draw(*shape, dtype=BF16):
    """Of many magnitudes, with a line of zeros, an infinity and a NaN."""
    torch.manual_seed(5)
    x = torch.randn(shape) * torch.rand(shape[-1]).mul(40).sub(20).exp2()
    x[..., 1] = 0
    if min(shape) > 3:
        x[..., 2, 3] = torch.inf
        x[..., 3, 2] = torch.nan
    return x.to(dtype)


ENDS = {
    "one": [40],
    "first_and_last_are_empty": [0, 0, 17, 40, 40],
    "all_are_empty": [0, 0, 0],
    "one_of_a_row": [1, 2, 39, 40],
    "rows_behind_the_last": [3, 30],
    "many": [*range(0, 40, 1)],
}


@command.needs_retrograd
@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("name", ENDS)
def test_columns_of_groups(name, dtype):
    ends = torch.tensor(ENDS[name], dtype=torch.int32)
    check(GROUPS, draw(40, 21, dtype=dtype), ends, E4M3, True, last=ENDS[name][-1])
    check(GROUPS, draw(40, 16, dtype=dtype), ends, E5M2, False, last=ENDS[name][-1])


@command.needs_retrograd
@pytest.mark.parametrize("name", ENDS)
def test_rows_of_groups(name):
    ends, last = torch.tensor(ENDS[name], dtype=torch.int32), ENDS[name][-1]
    for x in (draw(40, 21).t(), draw(21, 40)):
        results = run("triton_fp8_per_group_rowwise_scales", x, ends, E4M3, True)
        for got, want in zip(*results, strict=True):
            assert_same(*((t[:, :last] if t.dim() == 2 else t) for t in (got, want)))


@command.needs_retrograd
def test_two_tensors_of_the_same_groups():
    ends = torch.tensor([3, 3, 50, 290], dtype=torch.int32)
    check(f"{GROUPS}_dual", draw(300, 24), draw(300, 33), ends, E4M3, True, last=290)


@command.needs_retrograd
@pytest.mark.parametrize("shape", [(3, 21, 40), (1, 5, 3), (2, 64, 33)])
def test_experts_are_transposed(shape):
    check("triton_fp8_rowwise_transpose_rhs", draw(*shape), E4M3, True)
    check("triton_fp8_rowwise_transpose_rhs", draw(*shape).mT, E4M3, True)
    check("triton_fp8_colwise_3d_scale_and_cast", draw(*shape).mT, E4M3, True)


@command.needs_retrograd
@pytest.mark.parametrize("dtype", [BF16, F32])
def test_rows(dtype):
    for shape in ((21, 40), (5, 3), (7, 1030)):
        check("triton_fp8_rowwise_2d_scale_and_cast", draw(*shape, dtype=dtype), E4M3, True)
        check("triton_fp8_rowwise_2d_scale_and_cast", draw(*shape, dtype=dtype))


@command.needs_retrograd
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz])
def test_quantisers_to_fnuz_forms(dtype):
    """Their largest numbers are others, and 0 has no sign."""
    check("triton_fp8_rowwise_2d_scale_and_cast", draw(9, 24), dtype, True)
    check("triton_fp8_rowwise_transpose_rhs", draw(3, 40, 24).mT, dtype, True)
    ends = torch.tensor([0, 17, 40], dtype=torch.int32)
    check(GROUPS, draw(40, 24), ends, dtype, True)


BLOCKS = "triton_fp8_blockwise"


@command.needs_retrograd
@pytest.mark.parametrize("name", fp8_block_samples.STAND_INS)
def test_blocks(name):
    """Whole ones, and those that a matrix ends in, along either axis and along both."""
    lead = (2,) if "grouped" in name else ()
    for shape in ((128, 256), (40, 64), (130, 128), (128, 200), (37, 131)):
        check(f"{BLOCKS}_{name}", draw(*lead, *shape))
    check(f"{BLOCKS}_{name}", draw(*lead, 64, 96, dtype=F32), 32, E5M2)
    check(f"{BLOCKS}_{name}", draw(*lead, 9, 12).mT, 4, torch.float8_e4m3fnuz)


@command.needs_retrograd
def test_powers_of_two_are_rounded_down_exactly():
    """Scales just below a power of two, of which a logarithm in fp32 is that of the power."""
    largest = 448 / torch.nextafter(torch.ldexp(torch.ones(40), torch.arange(40)), torch.zeros(1))
    (_, scales), (_, wanted) = run(
        "triton_fp8_rowwise_2d_scale_and_cast", largest[:, None], E4M3, True
    )
    assert torch.equal(scales, wanted)


class Quantised(torch.autograd.Function):
    """The identity of x, whose backward gives its gradient in FP8 as that of `eighth`, and the
    scales."""

    @staticmethod
    def forward(ctx, x, eighth, scales, ends):
        ctx.save_for_backward(ends)
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        (ends,) = ctx.saved_tensors
        quantise = torch.ops.torchao.triton_fp8_per_group_colwise_scales
        eighth, scales = quantise(dy, ends, E4M3, True)
        return dy, eighth.to(BF16), scales, None


class Model(torch.nn.Module):
    def forward(self, x, eighth, scales, ends):
        return Quantised.apply(x.sin(), eighth, scales, ends).float().square().sum()


@command.needs_retrograd
def test_a_backward_that_quantises_is_exported(tmp_path):
    ends = torch.tensor([0, 30, 64], dtype=torch.int32)
    x = torch.randn(64, 48).to(BF16).requires_grad_()
    eighth = torch.zeros(64, 48, dtype=BF16).requires_grad_()
    scales = torch.zeros(3 * 48).requires_grad_()
    (path,) = retrograd.export_backward(
        Model(), (x, eighth, scales, ends), {}, tmp_path / "quantised", bundle=True
    )
    command.run_and_check(path, tmp_path / "quantised.safetensors", "--spec", "h100")


def refused(reason, name, *arguments):
    results = [torch.empty(1)] * 2
    with pytest.raises(retrograd.ExportError, match=reason):
        single_op.translate_op(f"torchao.{name}.default", arguments, results=results)


def test_what_has_no_counterpart_is_refused():
    x, ends = draw(8, 8), torch.tensor([8], dtype=torch.int32)
    refused("float8_e8m0fnu", GROUPS, x, ends, torch.float8_e8m0fnu)
    refused("cast it to float32", GROUPS, x.double(), ends)
    refused("rank 3", "triton_fp8_rowwise_2d_scale_and_cast", draw(2, 8, 8))
    refused("blocks of 0", f"{BLOCKS}_act_quant_lhs", x, 0)
    refused("rank 2", f"{BLOCKS}_weight_quant_grouped_rhs", x)


def test_stand_ins_have_the_strides_of_torchao():
    ends = torch.tensor([3, 8], dtype=torch.int32)
    y, scales = fp8_samples.columns_of_groups(draw(8, 6), ends)
    assert (y.stride(), scales.shape) == ((1, 8), (12,))
    y, scales = fp8_samples.transposed_experts(draw(2, 8, 6))
    assert (y.shape, y.stride(), scales.shape) == ((2, 6, 8), (48, 1, 6), (2, 8))
