"""convolution_backward as the exporter translates it, evaluated in double by the reference
evaluator, against the gradients of PyTorch's autograd."""

import dataclasses
import itertools
import random
import types

import pytest
import reference
import retrograd
import single_op
import torch
from retrograd import translate
from retrograd.backend import backend, entry
from torch import nn

# Of the largest gradient; float64 sums of some hundred products.
TOLERANCE = 1e-10


@dataclasses.dataclass(frozen=True)
class Case:
    kernel: tuple
    extents: tuple
    stride: tuple = ()
    padding: tuple = ()
    dilation: tuple = ()
    output_padding: tuple = ()
    groups: int = 1
    channels: tuple = (4, 6)  # of the input and of the output
    batch: int = 2
    transposed: bool = False
    layouts: str = "nnn"  # of x, w, dy: n contiguous, c channels last
    mask: tuple = (True, True, True)
    seed: int = 0

    def numbers(self, name, default):
        return list(getattr(self, name)) or [default] * len(self.kernel)

    def __str__(self):
        changed = (f for f in dataclasses.fields(self) if getattr(self, f.name) != f.default)
        return ",".join(f"{f.name}={getattr(self, f.name)}" for f in changed).replace(" ", "")


def _laid_out(tensor, layout):
    if layout == "n":
        return tensor
    order = (0, *range(2, tensor.ndim), 1)
    return tensor.permute(order).contiguous().permute(0, -1, *range(1, tensor.ndim - 1))


def _gradients(case):
    """(arguments of aten.convolution_backward, autograd's gradients, None where masked)."""
    torch.manual_seed(case.seed)
    dims, (inputs, outputs) = len(case.kernel), case.channels
    ends = (inputs, outputs // case.groups) if case.transposed else (outputs, inputs // case.groups)
    x = torch.randn(case.batch, inputs, *case.extents, dtype=torch.float64)
    w = torch.randn(*ends, *case.kernel, dtype=torch.float64)
    bias = torch.randn(outputs, dtype=torch.float64)
    x, w = _laid_out(x, case.layouts[0]), _laid_out(w, case.layouts[1])
    walk = (
        case.numbers("stride", 1), case.numbers("padding", 0), case.numbers("dilation", 1),
        case.transposed, case.numbers("output_padding", 0), case.groups,
    )  # fmt: skip
    assert len(walk[0]) == dims
    leaves = [t.detach().requires_grad_() for t in (x, w, bias)]
    y = torch.ops.aten.convolution(*leaves, *walk)
    dy = _laid_out(torch.randn(y.shape, dtype=torch.float64), case.layouts[2])
    gradients = torch.autograd.grad(y, leaves, dy)
    arguments = (dy, x, w, [outputs], *walk, list(case.mask))
    return arguments, tuple(g if m else None for g, m in zip(gradients, case.mask))


def _check(case, folder):
    arguments, gradients = _gradients(case)
    graph, inputs, expected = single_op.translate_op(
        "aten.convolution_backward.default", arguments, results=gradients
    )
    computed = reference.evaluate(graph, inputs, folder)
    assert len(computed) == len(expected) == sum(case.mask)
    for got, want in zip(computed.values(), expected):
        assert got.shape == want.shape
        scale = max(1.0, want.abs().max().item()) if want.numel() else 1.0
        assert not want.numel() or (got - want).abs().max().item() <= TOLERANCE * scale
    return graph


# --- the axes of PyTorch's own test, at small extents --------------------------------------------
GRID = [
    Case(
        (kernel, kernel), (7, 6), (stride, stride), (padding, padding), (dilation, dilation),
        groups=groups, channels=channels, layouts=layouts,
    )
    for dilation, stride, padding, kernel in itertools.product((1, 2), (1, 2), (0, 1), (1, 3))
    for channels, groups in (((8, 8), 1), ((6, 15), 1), ((3, 16), 1), ((6, 12), 3), ((5, 5), 5))
    for layouts in ("nnn", "ccc")
]  # fmt: skip

# --- what else is known to go wrong --------------------------------------------------------------
SPECIAL = [
    Case((5, 5), (9, 8), (2, 2), (2, 2)),
    Case((7, 7), (16, 15), (2, 2), (3, 3), channels=(3, 8)),
    Case((1, 3), (5, 7), (1, 2), (0, 1)),
    Case((3, 1), (5, 7), (2, 1), (1, 0)),
    Case((3, 3), (10, 11), (3, 3), (1, 1)),
    Case((2, 2), (9, 9), (3, 3)),  # a stride beyond the kernel: pixels between windows
    Case((1, 1), (8, 9), (2, 2)),
    Case((1, 1), (8, 9), (3, 2), groups=2),
    Case((3, 3), (12, 11), (2, 2), (2, 2), (2, 2)),  # gcd(stride, dilation) = 2
    Case((3, 3), (14, 13), (2, 3), (3, 3), (4, 3)),
    Case((3, 2), (13, 13), (3, 2), (0, 2), (3, 4)),
    Case((3, 3), (4, 5), (1, 1), (4, 4)),  # padding beyond the kernel
    Case((1, 1), (3, 3), (1, 1), (2, 2)),
    Case((3, 3), (2, 2), (2, 2), (3, 5)),
    Case((3, 3), (3, 3)),  # one output pixel
    Case((3, 3), (1, 1), (1, 1), (1, 1)),
    Case((1, 1), (1, 1)),
    Case((1, 1), (1, 1), batch=1, channels=(7, 3)),
    Case((3, 3), (8, 8), (2, 2)),  # a last pixel that no window reads
    Case((2, 2), (7, 5), (2, 2)),
    Case((4, 4), (11, 10), (4, 4)),
    Case((7, 7), (8, 8), (1, 1), (3, 3), groups=6, channels=(6, 6)),
    Case((3, 3), (6, 7), (2, 2), (1, 1), groups=4, channels=(4, 12)),  # several filters a channel
    Case((3, 3), (6, 7), (2, 1), (1, 1), groups=4, channels=(4, 12), layouts="ccc"),
    Case((3, 3), (6, 7), (1, 1), (1, 1), batch=1),
    Case((3, 3), (6, 7), (1, 1), (1, 1), batch=0),
    Case((5,), (11,), (2,), (2,)),
    Case((3,), (9,), (2,), (2,), (2,), groups=2),
    Case((1,), (6,)),
    Case((1,), (1,)),
    Case((4,), (20,), (4,)),
    Case((2, 3, 2), (4, 5, 3), (2, 1, 2), (1, 1, 0)),
    Case((3, 1, 3), (5, 4, 5), (1, 2, 1), (1, 0, 2), (2, 1, 1), groups=2),
    Case((1, 1, 1), (2, 3, 2)),
    Case((3, 3, 3), (4, 4, 4), (2, 2, 2), (1, 1, 1), groups=4, channels=(4, 4)),
    *(
        Case((3, 3), (6, 5), (2, 1), (1, 1), layouts="".join(layouts))
        for layouts in itertools.product("nc", repeat=3)
    ),
    *(
        Case((1, 1), (6, 5), layouts="".join(layouts))
        for layouts in itertools.product("nc", repeat=3)
    ),
    *(
        Case((3, 3), (6, 5), (2, 2), (1, 1), mask=mask)
        for mask in itertools.product((True, False), repeat=3)
        if any(mask)
    ),
    *(
        Case((3, 3), (4, 5), (2, 2), (1, 1), output_padding=(1, 1), transposed=True, mask=mask)
        for mask in itertools.product((True, False), repeat=3)
        if any(mask)
    ),
]

TRANSPOSED = [
    Case((2, 2), (4, 5), (2, 2), transposed=True),
    Case((4, 4), (3, 5), (2, 2), (1, 1), transposed=True),
    Case((3, 3), (4, 5), (3, 2), (1, 1), output_padding=(2, 1), transposed=True),
    Case((3, 3), (4, 5), (3, 2), (1, 1), output_padding=(2, 0), transposed=True, layouts="ccc"),
    # The output padding reaches the stride: a convolution of dy has a pixel more than x.
    Case((3, 3), (4, 5), (1, 1), (1, 1), (2, 2), output_padding=(1, 1), transposed=True),
    Case((3, 2), (4, 5), (2, 1), (2, 1), (3, 3), output_padding=(2, 2), transposed=True),
    Case((3, 3), (4, 5), (2, 2), (1, 1), groups=2, transposed=True),
    Case((3, 3), (4, 5), (2, 2), (1, 1), groups=4, channels=(4, 8), transposed=True),
    Case((1, 1), (4, 5), transposed=True),
    Case((1, 1), (4, 5), transposed=True, layouts="ccc"),
    Case((3,), (5,), (2,), (1,), output_padding=(1,), transposed=True),
    Case((4,), (5,), (3,), (2,), (2,), output_padding=(2,), transposed=True),
    Case((2, 3, 2), (3, 2, 4), (2, 1, 2), (0, 1, 1), transposed=True),
    Case((3, 3, 3), (2, 3, 2), (2, 2, 2), (1, 1, 1), output_padding=(1, 0, 1), transposed=True),
]


def _random_case(seed):
    draw = random.Random(seed)
    dims, groups = draw.choice((1, 2, 2, 3)), draw.choice((1, 1, 2, 3))
    transposed = draw.random() < 0.3
    kernel, extents, stride, padding, dilation, more = [], [], [], [], [], []
    for _ in range(dims):
        kernel.append(draw.choice((1, 2, 3, 3, 5)))
        stride.append(draw.randint(1, 3))
        dilation.append(draw.randint(1, 3))
        window = dilation[-1] * (kernel[-1] - 1) + 1
        if transposed:
            extents.append(draw.randint(1, 5))
            most = ((extents[-1] - 1) * stride[-1] + window - 1) // 2
            padding.append(draw.randint(0, min(most, 4)))
            more.append(draw.randint(0, max(stride[-1], dilation[-1]) - 1))
        else:
            padding.append(draw.randint(0, 4))
            extents.append(max(1, window - 2 * padding[-1]) + draw.randint(0, 6))
            more.append(0)
    return Case(
        tuple(kernel), tuple(extents), tuple(stride), tuple(padding), tuple(dilation), tuple(more),
        groups, (groups * draw.randint(1, 4), groups * draw.randint(1, 4)), draw.randint(1, 3),
        transposed, "".join(draw.choice("nc") for _ in range(3)), seed=seed,
    )  # fmt: skip


@reference.needs_program
@pytest.mark.parametrize("case", [*GRID, *SPECIAL, *TRANSPOSED], ids=str)
def test_the_gradients_are_those_of_autograd(tmp_path, case):
    _check(case, tmp_path)


@reference.needs_program
@pytest.mark.parametrize("seed", range(100))
def test_the_gradients_of_a_random_convolution_are_those_of_autograd(tmp_path, seed):
    case = _random_case(seed)
    print(case)
    _check(case, tmp_path)


@reference.needs_program
def test_the_comparison_notices_a_wrong_attribute(tmp_path):
    arguments, gradients = _gradients(Case((3, 3), (6, 6), (1, 1), (1, 1)))
    graph, inputs, expected = single_op.translate_op(
        "aten.convolution_backward.default", arguments, results=gradients
    )
    for node in graph.nodes:
        for attr in node.attrs:
            if attr.name == "groups":
                attr.i = 2
    with pytest.raises(AssertionError, match="channels a group"):
        reference.evaluate(graph, inputs, tmp_path)


def test_a_convolution_of_one_tap_is_a_matmul_where_pixels_lie_as_rows():
    def ops(case):
        arguments, gradients = _gradients(case)
        graph, *_ = single_op.translate_op(
            "aten.convolution_backward.default", arguments, results=gradients
        )
        return [n.op for n in graph.nodes if n.op == "matmul" or n.op.startswith("convolution")]

    assert ops(Case((1, 1), (6, 5), layouts="ccc")) == ["matmul", "matmul"]
    assert ops(Case((1, 1), (1, 1))) == ["matmul", "matmul"]
    assert ops(Case((1, 1), (6, 5), layouts="ncc")) == ["matmul", "convolution_weight_gradient"]
    plain = ["convolution_input_gradient", "convolution_weight_gradient"]
    assert ops(Case((1, 1), (6, 5))) == plain
    assert ops(Case((1, 1), (6, 5), (2, 2), layouts="ccc")) == plain
    assert ops(Case((1, 1), (6, 5), groups=2, layouts="ccc")) == plain
    assert ops(Case((1, 1), (6, 5), padding=(1, 0), layouts="ccc")) == plain


def _channels_last_net():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 6, 1, bias=False), nn.ReLU(), nn.Conv2d(6, 4, 1, bias=False))
    return net.to(memory_format=torch.channels_last)


@reference.needs_program
@pytest.mark.parametrize(
    ("inputs", "weights", "matmuls"),
    [
        (("cudnn", "retrograd", "matmul"), ("matmul", "retrograd"), 3),
        (("retrograd", "cudnn"), ("cudnn", "matmul"), 2),
        (("retrograd",), ("retrograd",), 0),
    ],
)
def test_backends_say_whether_convolutions_of_one_tap_are_matmuls(
    monkeypatch, inputs, weights, matmuls
):
    graphs = []

    def recorded(*arguments):
        graphs.append(translate.translate(*arguments))
        return graphs[-1]

    monkeypatch.setattr(entry, "translate", types.SimpleNamespace(translate=recorded))
    x = torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last)
    options = {"conv_bwd_input_backends": inputs, "conv_bwd_weight_backends": weights}
    ours, eager = _channels_last_net(), _channels_last_net()
    compiled = torch.compile(
        ours, backend=backend, options={"require_full": True, **options}, dynamic=False
    )
    # A backward that an earlier process kept would not be translated.
    with torch._functorch.config.patch(enable_autograd_cache=False):
        compiled(x).square().sum().backward()
    eager(x).square().sum().backward()
    for p, q in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    ((graph, _),) = graphs
    assert sum(node.op == "matmul" for node in graph.nodes) == matmuls


@reference.needs_program
def test_a_model_with_one_convolution_goes_all_the_way(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Flatten()).double()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    (path,) = retrograd.export_backward(
        model, (x,), {}, tmp_path / "conv", loss_fn=lambda y: y.square().sum(), bundle=True
    )
    bundle = tmp_path / "conv.safetensors"
    graph, outputs, gradients = reference.evaluate_file(path, bundle, tmp_path)
    assert {n.op for n in graph.nodes} >= {
        "convolution_input_gradient", "convolution_weight_gradient"
    }  # fmt: skip
    assert {graph.outputs[i].name for i in outputs} == {"0.weight", "0.bias", "input"}
    for i, gradient in gradients.items():
        torch.testing.assert_close(outputs[i], gradient, rtol=1e-10, atol=1e-10)
