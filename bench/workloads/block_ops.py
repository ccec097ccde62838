"""Blocks of a convolution or a linear layer with what stands behind it, as op_models.py has its ops."""

import torch
from torch import nn
from torch.nn import functional as F
from workloads.weighted import BF16, Weighted, given, parameter, row_of


def layered(*layers):
    return nn.Sequential(*layers).to(BF16)


def like(op, *tensors):
    """The op, the tensors, and a weight for each of the results' elements."""
    weighted_op = Weighted(op).to(BF16)
    with torch.no_grad():
        shape = op(*tensors).shape
    return weighted_op, (*tensors, torch.randn(shape, dtype=BF16))


# Convolutions.


def conv_hardswish_pool(batch, channels, edge, results):
    block = layered(nn.Conv2d(channels, results, 3), nn.Hardswish(), nn.MaxPool2d(2), nn.Mish())
    return like(block, given(batch, channels, edge, edge))


def conv_group_norm_gelu(batch, channels, edge, groups):
    block = layered(
        nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(groups, channels), nn.GELU()
    )
    return like(block, given(batch, channels, edge, edge))


def conv_of_volumes(batch, channels, edge, results):
    """A convolution of volumes, a leaky ReLU, a shift, a clamp and a pool."""

    def op(x, shift):
        return F.max_pool3d((F.leaky_relu(convolution(x), 0.2) + shift).clamp(-1, 1), 2)

    convolution = nn.Conv3d(channels, results, 3, padding=1, dtype=BF16)
    block = Weighted(op, shift=parameter(results, 1, 1, 1))
    block.convolution = convolution
    half = edge // 2
    weight = torch.randn(batch, results, half, half, half, dtype=BF16)
    return block, (given(batch, channels, edge, edge, edge), weight)


def upsampled_volumes(batch, channels, edge, results):
    """A transposed convolution of volumes with its norm, from which means of volumes are taken."""
    convolution = nn.ConvTranspose3d(channels, results, 3, 2, 1, dtype=BF16)
    norm = nn.BatchNorm3d(results, dtype=BF16)

    def op(x):
        x = norm(convolution(x))
        return x - x.mean((2, 3, 4), keepdim=True)

    model, tensors = like(op, given(batch, channels, edge, edge, edge))
    model.layers = nn.ModuleList((convolution, norm))
    return model, tensors


def gated_wave(batch, channels, length, dilation):
    """WaveNet's layer: a dilated convolution's halves as gate and value, and the way past them."""
    dilated = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation, dtype=BF16)
    mixed = nn.Conv1d(channels, channels, 1, dtype=BF16)

    def op(x):
        value, gate = dilated(F.pad(x, (dilation, 0))).chunk(2, 1)
        return x + mixed(value.tanh() * gate.sigmoid())

    model, tensors = like(op, given(batch, channels, length))
    model.layers = nn.ModuleList((dilated, mixed))
    return model, tensors


def waveform_features(batch, length, channels):
    """The first two layers of wav2vec: long strides over a waveform of one channel."""
    block = layered(
        nn.Conv1d(1, channels, 10, 5, bias=False), nn.GroupNorm(channels, channels), nn.GELU(),
        nn.Conv1d(channels, channels, 3, 2, bias=False), nn.GELU(),
    )  # fmt: skip
    return like(block, torch.randn(batch, 1, length, dtype=BF16))


class Bottleneck(nn.Module):
    """MobileNet's inverted one: wide, depthwise, narrow, and the way past it."""

    def __init__(self, channels, wide):
        super().__init__()
        self.block = layered(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.ReLU6(), nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x):
        return x + self.block(x)


def inverted_bottleneck(batch, channels, edge, wide):
    image = torch.randn(batch, channels, edge, edge, dtype=BF16)
    image = image.to(memory_format=torch.channels_last).requires_grad_()
    return like(Bottleneck(channels, wide), image)


class Joined(nn.Module):
    """U-Net's step up: a transposed convolution beside what came from the other side."""

    def __init__(self, channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, 2, 2)
        self.block = nn.Sequential(
            nn.Conv2d(channels, channels // 2, 3, padding=1), nn.GroupNorm(8, channels // 2),
            nn.SiLU(),
        )  # fmt: skip

    def forward(self, x, other):
        return self.block(torch.cat((other, self.up(x)), 1))


def step_up(batch, channels, edge):
    other = given(batch, channels // 2, 2 * edge, 2 * edge)
    return like(Joined(channels).to(BF16), given(batch, channels, edge, edge), other)


class Pyramid(nn.Module):
    """Dilated convolutions of one image beside each other, as DeepLab has them."""

    def __init__(self, channels, results, dilations):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, results, 3, padding=d, dilation=d, bias=False),
                nn.BatchNorm2d(results), nn.ReLU(),
            ) for d in dilations
        )  # fmt: skip

    def forward(self, x):
        return torch.cat([layer(x) for layer in self.layers], 1)


def dilated_pyramid(batch, channels, edge, results):
    block = Pyramid(channels, results, (1, 2, 4)).to(BF16)
    return like(block, given(batch, channels, edge, edge))


# Linear layers.


def linear_group_norm(rows, width, results, groups):
    block = layered(nn.Linear(width, results), nn.GroupNorm(groups, results), nn.Hardtanh())
    return like(block, given(rows, width))


def linear_swish_clamp(rows, width, results):
    linear = nn.Linear(width, results, dtype=BF16)

    def op(x):
        x = linear(x)
        return (x * x.sigmoid() / 2).clamp(-1, 1).tanh()

    model, tensors = like(op, given(rows, width))
    model.linear = linear
    return model, tensors


def linear_pool_sum(rows, width, results):
    """The greatest of each two results, summed by row."""
    linear = nn.Linear(width, results, dtype=BF16)

    def op(x):
        return F.max_pool1d(linear(x)[:, None], 2).sum((1, 2)) * 0.5

    model, tensors = like(op, given(rows, width))
    model.linear = linear
    return model, tensors


class LowRank(nn.Module):
    """A frozen matrix beside the product of two thin ones that are trained."""

    def __init__(self, width, results, rank):
        super().__init__()
        self.base = nn.Linear(width, results, bias=False).requires_grad_(False)
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, results, bias=False)

    def forward(self, x):
        return self.base(x) + 2 * self.up(self.down(x))


def low_rank_adapter(rows, width, results, rank):
    return like(LowRank(width, results, rank).to(BF16), given(rows, width))


def bilinear(rows, left, right, results):
    return like(nn.Bilinear(left, right, results).to(BF16), given(rows, left), given(rows, right))


def highway(rows, width):
    linear = nn.Linear(width, 2 * width, dtype=BF16)

    def op(x):
        value, gate = linear(x).chunk(2, -1)
        gate = gate.sigmoid()
        return gate * value.relu() + (1 - gate) * x

    model, tensors = like(op, given(rows, width))
    model.linear = linear
    return model, tensors


def narrow_perceptron(rows, width, hidden):
    """Of few columns and many rows, as radiance fields and tables have it."""
    block = layered(
        nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 4),
    )  # fmt: skip
    return like(block, given(rows, width))


def experts_by_batch(experts, rows, width, hidden):
    """Each expert's linear layers with a GELU, as products of batches."""

    def op(x, up, shift, down):
        return torch.bmm(F.gelu(torch.baddbmm(shift, x, up)), down)

    tensors = dict(
        up=parameter(experts, width, hidden), shift=parameter(experts, 1, hidden),
        down=parameter(experts, hidden, width),
    )  # fmt: skip
    shape = (experts, rows, width)
    return Weighted(op, **tensors), (given(*shape), torch.randn(shape, dtype=BF16))


def mixed_tokens(batch, tokens, width, hidden):
    """MLP-Mixer's: a perceptron over the tokens of each channel."""
    block = layered(nn.Linear(tokens, hidden), nn.GELU(), nn.Linear(hidden, tokens))
    norm = nn.LayerNorm(width, dtype=BF16)

    def op(x):
        return x + block(norm(x).transpose(1, 2)).transpose(1, 2)

    model, tensors = like(op, given(batch, tokens, width))
    model.layers = nn.ModuleList((block, norm))
    return model, tensors


def lstm_steps(batch, width, steps):
    """A cell's steps one after the other; the inputs are multiplied all at once."""
    recurrent = nn.Linear(width, 4 * width, dtype=BF16)

    def op(x):
        state = cell = torch.zeros_like(x[0, :, :width])
        states = []
        for given_gates in x:
            i, f, g, o = (given_gates + recurrent(state)).chunk(4, -1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            state = o.sigmoid() * cell.tanh()
            states.append(state)
        return torch.stack(states)

    model, tensors = like(op, given(steps, batch, 4 * width))
    model.recurrent = recurrent
    return model, tensors


_SMALL = dict(batch=2, channels=4, edge=6)

# name: (maker, its sizes, sizes that a CPU runs through in no time)
MODELS = {
    **row_of(conv_hardswish_pool, dict(batch=64, channels=64, edge=64, results=128),
           dict(_SMALL, results=6)),
    **row_of(conv_group_norm_gelu, dict(batch=32, channels=128, edge=56, groups=8),
           dict(_SMALL, groups=2)),
    **row_of(conv_of_volumes, dict(batch=4, channels=32, edge=32, results=64),
           dict(_SMALL, results=6)),
    **row_of(upsampled_volumes, dict(batch=4, channels=32, edge=16, results=16),
           dict(_SMALL, edge=3, results=2)),
    **row_of(gated_wave, dict(batch=8, channels=128, length=4096, dilation=64),
           dict(batch=2, channels=4, length=9, dilation=2)),
    **row_of(waveform_features, dict(batch=8, length=80000, channels=512),
           dict(batch=2, length=60, channels=4)),
    **row_of(inverted_bottleneck, dict(batch=64, channels=32, edge=28, wide=192),
           dict(_SMALL, wide=8)),
    **row_of(step_up, dict(batch=8, channels=128, edge=64), dict(batch=2, channels=16, edge=3)),
    **row_of(dilated_pyramid, dict(batch=16, channels=256, edge=32, results=128),
           dict(_SMALL, results=4)),
    **row_of(linear_group_norm, dict(rows=8192, width=1024, results=2048, groups=16),
           dict(rows=5, width=8, results=8, groups=2)),
    **row_of(linear_swish_clamp, dict(rows=8192, width=1024, results=2048),
           dict(rows=5, width=8, results=8)),
    **row_of(linear_pool_sum, dict(rows=8192, width=1024, results=2048),
           dict(rows=5, width=8, results=8)),
    **row_of(low_rank_adapter, dict(rows=8192, width=2048, results=2048, rank=16),
           dict(rows=5, width=8, results=8, rank=2)),
    **row_of(bilinear, dict(rows=4096, left=64, right=64, results=64),
           dict(rows=5, left=4, right=3, results=2)),
    **row_of(highway, dict(rows=16384, width=512), dict(rows=5, width=8)),
    **row_of(narrow_perceptron, dict(rows=262144, width=32, hidden=64),
           dict(rows=9, width=8, hidden=8)),
    **row_of(experts_by_batch, dict(experts=16, rows=1024, width=512, hidden=1024),
           dict(experts=2, rows=3, width=8, hidden=8)),
    **row_of(mixed_tokens, dict(batch=64, tokens=196, width=512, hidden=256),
           dict(batch=2, tokens=5, width=8, hidden=4)),
    **row_of(lstm_steps, dict(batch=256, width=512, steps=8), dict(batch=2, width=4, steps=3)),
}  # fmt: skip
