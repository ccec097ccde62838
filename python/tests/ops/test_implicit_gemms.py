"""Convolutions' gradients by the kernels that Retrograd generates, run on the host, against
PyTorch's in float64: over stride, dilation, padding, kernel, groups, layout, dims, transposed or
not, and odd and tiny sizes."""

import itertools

import command
import pytest
import retrograd
import torch
from retrograd import native
from torch import nn

ONLY_OURS = (
    "--conv-bwd-input-backends", "retrograd", "--conv-bwd-weight-backends", "retrograd",
)  # fmt: skip
LAYERS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
TOGETHER = 12  # convolutions of a graph


def _case(channels, filters, groups, kernel, extents, stride=1, padding=0, dilation=1, last=True,
          batch=2, transposed=False, output_padding=0):  # fmt: skip
    return locals()


def _grid():
    """The axes of PyTorch's own tests of both gradients, for more channels and groups."""
    channels_groups = [(16, 16, 1), (13, 19, 1), (3, 16, 1), (8, 12, 2), (10, 10, 10), (6, 12, 6)]
    axes = itertools.product((1, 3), (1, 2), (0, 1), (1, 2), (True, False), channels_groups)
    for kernel, stride, padding, dilation, last, (channels, filters, groups) in axes:
        yield _case(channels, filters, groups, (kernel, kernel), (7, 6), stride, padding, dilation, last)


def _sizes():
    """Kernels, strides and dilations that the grid has not, odd and tiny images."""
    kernels = [(1, 3), (3, 1), (2, 2), (5, 5), (7, 7), (4, 3)]
    ways = [(1, 0, 1), (2, 3, 1), (3, 1, 1), ((2, 3), (3, 2), (2, 1)), (4, 2, 3), (2, 4, 2)]
    for kernel, (stride, padding, dilation), extents in itertools.product(
        kernels, ways, [(13, 15), (1, 9), (8, 11)]
    ):
        pair = [(v, v) if isinstance(v, int) else v for v in (padding, dilation)]
        fits = all(
            e + 2 * p >= d * (k - 1) + 1
            for k, e, p, d in zip(kernel, extents, *pair, strict=True)
        )  # fmt: skip
        if fits:
            yield _case(5, 9, 1, kernel, extents, stride, padding, dilation)


def _others():
    """1 and 3 dims, transposed convolutions, one pixel, one channel, a batch of one."""
    for stride, padding, dilation, groups in itertools.product((1, 2, 3), (0, 2), (1, 2), (1, 4)):
        yield _case(8, 12, groups, (3,), (17,), stride, padding, dilation, last=False)
    for stride, padding, last in itertools.product((1, 2), (0, 1), (True, False)):
        yield _case(4, 6, 1, (2, 3, 2), (4, 5, 4), stride, padding, last=last)
        yield _case(6, 4, 2, (3, 1, 3), (5, 3, 4), stride, padding, last=last)
    for stride, padding, dilation, groups in itertools.product((1, 2, 3), (0, 1), (1, 2), (1, 2)):
        yield _case(6, 8, groups, (3, 3), (5, 4), stride, padding, dilation, transposed=True,
                    output_padding=stride - 1 if stride > 1 else 0)  # fmt: skip
        yield _case(4, 6, groups, (3,), (6,), stride, padding, dilation, last=False, transposed=True)
    for channels, filters, batch in itertools.product((1, 7, 40), (1, 9, 33), (1, 3)):
        yield _case(channels, filters, 1, (1, 1), (1, 1), batch=batch)
        yield _case(channels, filters, 1, (3, 3), (1, 1), padding=1, batch=batch)


CASES = [*_grid(), *_sizes(), *_others()]


class Side(nn.Module):
    """Convolutions side by side, each on its own input."""

    def __init__(self, cases):
        super().__init__()
        self.layers = nn.ModuleList(self._layer(case) for case in cases)

    @staticmethod
    def _layer(case):
        dims = len(case["kernel"])
        more = {"output_padding": case["output_padding"]} if case["transposed"] else {}
        return (TRANSPOSED if case["transposed"] else LAYERS)[dims](
            case["channels"], case["filters"], case["kernel"], case["stride"], case["padding"],
            dilation=case["dilation"], groups=case["groups"], bias=False, **more,
        ).double()  # fmt: skip

    def forward(self, *inputs):
        results = [layer(x) for layer, x in zip(self.layers, inputs, strict=True)]
        return torch.cat([y.flatten() for y in results])


def _input(case):
    x = torch.randn(case["batch"], case["channels"], *case["extents"], dtype=torch.float64)
    if case["last"]:
        x = x.to(memory_format=LAST[len(case["kernel"])])
    return x.requires_grad_()


def test_there_are_cases():
    assert len(CASES) >= 400


@command.needs_retrograd
@pytest.mark.parametrize("first", range(0, len(CASES), TOGETHER))
def test_gradients_are_pytorchs(tmp_path, first):
    torch.manual_seed(first)
    cases = CASES[first : first + TOGETHER]
    (path,) = retrograd.export_backward(
        Side(cases), tuple(_input(case) for case in cases), {}, tmp_path / "conv",
        loss_fn=lambda y: (y * y.detach().sin()).sum(), bundle=True,
    )  # fmt: skip
    command.run_and_check(path, tmp_path / "conv.safetensors", *ONLY_OURS)


# Channels that fill boxes of 64, or parts of some; taps, strides and dilations of several dims.
BOXED = [
    _case(64, 40, 1, (3, 3), (6, 5), padding=1),
    _case(40, 72, 1, (3, 3), (13, 12), stride=2, padding=1),
    _case(32, 64, 1, (3, 2), (5, 6), padding=(2, 1), dilation=(2, 1)),
    _case(128, 128, 2, (1, 3), (4, 5), stride=(1, 2)),
]


def _makers(path, disable):
    """Who makes the calls of a graph on the host."""
    backends = {f"conv_bwd_{of}_backends": ["retrograd"] for of in ("input", "weight")}
    with native.Device("host") as device:
        settings = {**backends, "disable": disable}
        program = native.Executable(native.Graph.load(path), device, settings=settings)
        return [call["by"] for call in program.describe()["calls"]]


@command.needs_retrograd
@pytest.mark.parametrize("case", BOXED, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()))
def test_gradients_of_operands_in_boxes_are_pytorchs(tmp_path, case):
    torch.manual_seed(1)
    dims = len(case["kernel"])
    layer = LAYERS[dims](
        case["channels"], case["filters"], case["kernel"], case["stride"], case["padding"],
        case["dilation"], groups=case["groups"], bias=False,
    ).bfloat16().to(memory_format=LAST[dims])  # fmt: skip
    x = _input(case).detach().bfloat16().requires_grad_()
    (path,) = retrograd.export_backward(
        layer, (x,), {}, tmp_path / "conv", loss_fn=lambda y: (y * y.detach().sin()).sum(),
        bundle=True,
    )  # fmt: skip
    makers = _makers(path, [])
    assert len(makers) == 2
    assert any("boxes" in by for by in makers)
    assert not any("boxes" in by for by in _makers(path, ["image_boxes"]))
    for options in ((), ("--disable", "image_boxes")):
        command.run_and_check(path, tmp_path / "conv.safetensors", *ONLY_OURS, *options)
