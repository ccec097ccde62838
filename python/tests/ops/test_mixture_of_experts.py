"""Mixtures of experts, whose matmuls are grouped by expert: exported and run on the host, against
PyTorch's gradients."""

import copy

import command
import pytest
import retrograd
import single_op
import torch
from backend_training import interpreted_forwards
from retrograd import schema
from retrograd.backend import backend
from torch import nn
from torch.nn import functional as F


class Experts(nn.Module):
    """A router that takes the best `chosen` experts of each token, and their gated units.

    bias: [experts], added to the router's scores: who is chosen. dtype: of the parameters; experts
    multiply in the type of x.
    """

    def __init__(self, width, inner, bias, chosen, dtype):
        super().__init__()
        experts, self.chosen = len(bias), chosen
        self.register_buffer("bias", torch.tensor(bias, dtype=dtype))
        self.router = nn.Linear(width, experts, bias=False, dtype=dtype)
        self.up = nn.Parameter((0.2 * torch.randn(experts, width, 2 * inner)).to(dtype))
        self.down = nn.Parameter((0.2 * torch.randn(experts, inner, width)).to(dtype))

    def forward(self, x, target):
        scores = self.router(x) + self.bias
        weights, experts = torch.softmax(scores.float(), -1).topk(self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        order = torch.argsort(experts.flatten(), stable=True)
        token = order // self.chosen
        sizes = F.one_hot(experts.flatten(), len(self.bias)).sum(0)
        ends = sizes.cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(x[token], self.up.to(x.dtype), offs=ends).chunk(2, -1)
        made = torch._grouped_mm(F.silu(gate) * up, self.down.to(x.dtype), offs=ends)
        made = made * weights.flatten()[order, None].to(made.dtype)
        y = torch.zeros_like(x).index_add(0, token, made)
        return (y.float() - target).square().mean()


EVEN = [0.0, 0.0, 0.0, 0.0]
MIXTURES = {  # name: (the router's bias, experts of a token)
    "even": (EVEN, 2),
    "one_of_a_token": (EVEN, 1),
    "first_and_last_are_empty": ([-9.0, 0.0, 0.0, 0.0, -9.0], 2),
    "one_takes_all": ([0.0, 20.0, 0.0], 1),
    "one_expert": ([0.0], 1),
}


def _export(bias, chosen, dtype, folder):
    torch.manual_seed(3)
    width, tokens = 24, 37
    module = Experts(width, 40, bias, chosen, dtype)
    x = torch.randn(tokens, width).to(dtype).requires_grad_()
    target = torch.randn(tokens, width)
    (path,) = retrograd.export_backward(module, (x, target), {}, folder / "experts", bundle=True)
    return path, folder / "experts.safetensors"


def _matmuls(path):
    """The ranks of the operands of each matmul of groups."""
    graph = schema.Graph.FromString(path.read_bytes())
    nodes = [n for n in graph.nodes if n.op == "grouped_matmul"]
    return [[len(graph.nodes[o.node].results[o.result].dims) for o in n.operands] for n in nodes]


@command.needs_retrograd
@pytest.mark.parametrize("name", MIXTURES)
def test_gradients_are_those_of_pytorch(tmp_path, name):
    """In bf16, the one type of which PyTorch's compiler takes the op."""
    path, bundle = _export(*MIXTURES[name], torch.bfloat16, tmp_path)
    # Of each of the two products: the gradient of its rows, and that of its experts' matrices.
    assert sorted(_matmuls(path)) == [[2, 2, 1]] * 2 + [[2, 3, 1]] * 2
    command.run_and_check(path, bundle, "--spec", "h200")


@command.needs_retrograd
def test_gradients_of_fp32_parameters_are_stored_by_the_matmuls(tmp_path):
    """Under autocast."""
    torch.manual_seed(3)
    module = Experts(24, 40, *MIXTURES["even"], torch.float32)
    x = torch.randn(37, 24).bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        (path,) = retrograd.export_backward(
            module, (x, torch.randn(37, 24)), {}, tmp_path / "experts", bundle=True
        )
    command.run_and_check(path, tmp_path / "experts.safetensors", "--spec", "h200")
    plan = command.output("dump", path, "--spec", "h200", "--stage", "plan")
    assert len([line for line in plan.splitlines() if "groups, into f32" in line]) == 2


@command.needs_retrograd
def test_a_compiled_model_gets_its_whole_backward():
    torch.manual_seed(3)
    ours = Experts(24, 40, *MIXTURES["even"], torch.bfloat16)
    eager = copy.deepcopy(ours)
    x, target = torch.randn(37, 24).bfloat16(), torch.randn(37, 24)
    with interpreted_forwards():
        torch.compile(ours, backend=backend, options={"require_full": True})(x, target).backward()
    eager(x, target).backward()
    for got, want in zip(ours.parameters(), eager.parameters(), strict=True):
        error = (got.grad - want.grad).float().norm() / want.grad.float().norm()
        assert error < 2e-2


def _sizes(groups, largest):
    return [(7 * g) % (largest + 1) for g in range(groups)]


SIZES = {  # name: (rows behind the last group, width, results, rows of each group)
    "even": (0, 256, 192, [128] * 4),
    "odd": (100, 264, 200, [131, 1, 0, 250, 33]),
    "first_and_last_are_empty": (323, 128, 64, [0, 0, 200, 77, 0]),
    "all_are_empty": (64, 64, 64, [0, 0]),
    "one": (0, 512, 520, [1000]),
    **{f"{n}_groups": (50, 136, 328, _sizes(n, 44)) for n in (31, 32, 33, 63, 64, 90)},
    "narrow": (50, 64, 40, _sizes(40, 90)),
    "long": (0, 2048, 1408, [100, 3000, 0, 1, 64, 4096, 700, 231]),
}


@command.needs_retrograd
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees")
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_groups_of_any_sizes_on_a_gpu(name, down, wide):
    """NaN in the rows behind the last group, which nothing may multiply. down: the experts' matrices
    lie by columns. wide: they are fp32, and cast."""
    torch._dynamo.reset()  # which runs eagerly what it has compiled for too many sizes
    (behind, width, results, sizes), dtype = SIZES[name], torch.bfloat16
    torch.manual_seed(1)
    rows, last = sum(sizes) + behind, sum(sizes)
    x = torch.randn(rows, width, device="cuda", dtype=dtype).requires_grad_()
    shape = (len(sizes), results, width) if down else (len(sizes), width, results)
    w = torch.randn(shape, device="cuda", dtype=torch.float32 if wide else dtype)
    w = (w.transpose(1, 2) if down else w).requires_grad_()
    d = torch.randn(rows, results, device="cuda", dtype=dtype)
    d[last:] = float("nan")
    ends = torch.tensor(sizes, device="cuda").cumsum(0).to(torch.int32)
    run = torch.compile(
        lambda x, w, ends: torch._grouped_mm(x, w.to(dtype), offs=ends),
        backend=backend, options={"require_full": True},
    )  # fmt: skip
    y = run(x, w, ends)
    ours, again = (torch.autograd.grad(y, [x, w], d, retain_graph=True) for _ in range(2))
    begins = [0, *ends.tolist()]
    wanted = (torch.zeros_like(x, dtype=torch.float32), torch.zeros_like(w, dtype=torch.float32))
    for g, (i, j) in enumerate(zip(begins, begins[1:])):
        wanted[0][i:j] = d[i:j].float() @ w[g].to(dtype).float().t()
        wanted[1][g] = x[i:j].float().t() @ d[i:j].float()
    for got, repeated, want in zip(ours, again, wanted):
        assert torch.equal(got, repeated)
        assert (got.float() - want).norm() <= 3e-3 * want.norm()
    # Sums that were never narrowed.
    assert not wide or (ours[1] - wanted[1]).norm() <= 1e-5 * wanted[1].norm()


@command.needs_retrograd
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees")
@pytest.mark.parametrize("name", ["odd", "first_and_last_are_empty", "33_groups"])
def test_experts_used_twice_on_a_gpu(name):
    """The later weight gradient adds to where the earlier one lies."""
    torch._dynamo.reset()
    (behind, width, results, sizes), dtype = SIZES[name], torch.bfloat16
    torch.manual_seed(1)
    x, z = (torch.randn(sum(sizes) + behind, width, device="cuda", dtype=dtype) for _ in range(2))
    w = torch.randn(len(sizes), width, results, device="cuda", dtype=dtype).requires_grad_()
    d = torch.randn(len(x), results, device="cuda", dtype=dtype)
    ends = torch.tensor(sizes, device="cuda").cumsum(0).to(torch.int32)
    run = torch.compile(
        lambda w: (torch._grouped_mm(x, w, offs=ends), torch._grouped_mm(z, w, offs=ends)),
        backend=backend, options={"require_full": True},
    )  # fmt: skip
    ours, again = (torch.autograd.grad(run(w), [w], [d, 2 * d])[0] for _ in range(2))
    begins = [0, *ends.tolist()]
    sums = x.float() + 2 * z.float()
    wanted = [sums[i:j].t() @ d[i:j].float() for i, j in zip(begins, begins[1:])]
    assert torch.equal(ours, again)
    wanted = torch.stack(wanted)
    assert (ours.float() - wanted).norm() <= 5e-3 * wanted.norm()


def test_a_bias_is_refused():
    x, w, ends = torch.randn(8, 8), torch.randn(2, 8, 8), torch.tensor([3, 8], dtype=torch.int32)
    with pytest.raises(retrograd.ExportError, match="a bias of grouped matmuls"):
        single_op.translate_op(
            "aten._grouped_mm.default", (x, w, ends, torch.randn(8)), results=torch.empty(8, 8)
        )


def test_wide_ends_are_refused():
    arguments = (torch.randn(8, 8), torch.randn(2, 8, 8), torch.tensor([3, 8]))
    with pytest.raises(retrograd.ExportError, match="cast it to int32"):
        single_op.translate_op("aten._grouped_mm.default", arguments, results=torch.empty(8, 8))
