"""Networks that no package has under a usual name, for held_out.py: each takes what make() of it
gives and returns its loss. Decision 108 (minGRU), rows for recurrent cells, and integers that backwards
make themselves (interpolation) came of them: those are models that something was made for."""

import torch
from torch import nn
from torch.nn import functional as F


class CellLoop(nn.Module):
    """An LSTM cell over time, step by step, and a class for each step."""

    def __init__(self, features=128, width=256, classes=100):
        super().__init__()
        self.cell, self.output = nn.LSTMCell(features, width), nn.Linear(width, classes)

    def forward(self, sound, classes):
        hidden = state = sound.new_zeros(sound.shape[1], self.cell.hidden_size)
        steps = []
        for frame in sound.unbind(0):
            hidden, state = self.cell(frame, (hidden, state))
            steps.append(hidden)
        logits = self.output(torch.stack(steps)).flatten(0, 1)
        return F.cross_entropy(logits.float(), classes.flatten())


class MinimalGru(nn.Module):
    """A block of a minGRU in logarithms (Feng et al. 2024), and an MLP."""

    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.gates, self.output = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        candidate, gate = self.gates(self.norms[0](x)).chunk(2, -1)
        kept, taken = -F.softplus(gate), -F.softplus(-gate)
        positive = (F.relu(candidate) + 0.5).log()
        log_candidate = torch.where(candidate >= 0, positive, -F.softplus(-candidate))
        decay = kept.cumsum(1)
        states = (decay + torch.logcumsumexp(taken + log_candidate - decay, 1)).exp()
        x = x + self.output(states)
        return x + self.mlp(self.norms[1](x))


class ParallelRecurrence(nn.Module):
    """Bytes, minGRU blocks, and the next byte."""

    def __init__(self, width=384, layers=4):
        super().__init__()
        self.embedding, self.output = nn.Embedding(256, width), nn.Linear(width, 256)
        self.blocks = nn.Sequential(*(MinimalGru(width) for _ in range(layers)))

    def forward(self, text, following):
        logits = self.output(self.blocks(self.embedding(text)))
        return F.cross_entropy(logits.flatten(0, 1).float(), following.flatten())


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates (van den Oord et al. 2016)."""

    def __init__(self, width=64, layers=20, classes=256):
        super().__init__()
        self.dilations = [2 ** (i % 10) for i in range(layers)]
        self.first = nn.Conv1d(1, width, 1)
        self.gated = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 2, dilation=d) for d in self.dilations
        )
        self.onward = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.skip = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.output = nn.Conv1d(width, classes, 1)

    def forward(self, sound, classes):
        x, total = self.first(sound), 0
        for dilation, gated, onward, skip in zip(
            self.dilations, self.gated, self.onward, self.skip
        ):
            signal, gate = gated(F.pad(x, (dilation, 0))).chunk(2, 1)
            made = signal.tanh() * gate.sigmoid()
            total, x = total + skip(made), x + onward(made)
        return F.cross_entropy(self.output(F.relu(total)).float(), classes)


class Modulated(nn.Module):
    """A convolution whose weights an image's style scales (Karras et al. 2020)."""

    def __init__(self, inputs, outputs, style, doubled):
        super().__init__()
        self.style, self.doubled = nn.Linear(style, inputs), doubled
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 3, 3))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, style):
        if self.doubled:
            x = F.interpolate(x, scale_factor=2, mode="bilinear")
        batch, _, *size = x.shape
        weight = self.weight * (self.style(style) + 1)[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        y = F.conv2d(x.reshape(1, -1, *size), weight.flatten(0, 1), padding=1, groups=batch)
        return F.leaky_relu(y.view(batch, -1, *size) + self.bias[:, None, None], 0.2)


class StyleGenerator(nn.Module):
    """Styles -> images of 64 x 64, and how unlike a number they are."""

    def __init__(self, style=256, width=128):
        super().__init__()
        widths = [width, width, width, width, width // 2, width // 2]
        self.constant = nn.Parameter(torch.randn(1, width, 16, 16))
        self.layers = nn.ModuleList(
            Modulated(a, b, style, i % 2 == 1) for i, (a, b) in enumerate(zip(widths, widths[1:]))
        )
        self.image = nn.Conv2d(widths[-1], 3, 1)

    def forward(self, styles):
        x = self.constant.expand(styles.shape[0], -1, -1, -1)
        for layer in self.layers:
            x = layer(x, styles)
        return F.softplus(-self.image(x).float()).mean()


class BilinearUNet(nn.Module):
    """A U-Net whose way up interpolates; a class for each pixel."""

    def __init__(self, width=32, levels=4, classes=4):
        super().__init__()
        widths = [width << min(i, levels - 1) for i in range(levels + 1)]
        self.first = self._block(3, width)
        self.down = nn.ModuleList(map(self._block, widths, widths[1:]))
        up = [width, *widths[:-1]]
        self.up = nn.ModuleList(
            self._block(widths[i] + up[i + 1], up[i]) for i in reversed(range(levels))
        )
        self.output = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _block(inputs, outputs):
        layers = []
        for i in (inputs, outputs):
            layers += [nn.Conv2d(i, outputs, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, images, classes):
        kept = [self.first(images)]
        for block in self.down:
            kept.append(block(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for block in self.up:
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            x = block(torch.cat([kept.pop(), x], 1))
        return F.cross_entropy(self.output(x).float(), classes)


def _made(network, inputs):
    """inputs(device): the tensors of a step."""

    def make(device):
        return network().to(device).train(), inputs(device), {}

    return make


def models():
    """{name: make(device)}; what is behind a name is its batch."""

    def classes(count, *shape):
        return lambda device: torch.randint(0, count, shape, device=device)

    def numbers(*shape):
        return lambda device: torch.randn(shape, device=device)

    def step(*tensors):
        return lambda device: tuple(tensor(device) for tensor in tensors)

    side, seconds = 256, 8192
    return {
        "cells_b64": _made(CellLoop, step(numbers(24, 64, 128), classes(100, 24, 64))),
        "mingru_b16": _made(
            ParallelRecurrence, step(classes(256, 16, 512), classes(256, 16, 512))
        ),
        "wavenet_b4": _made(WaveNet, step(numbers(4, 1, seconds), classes(256, 4, seconds))),
        "styles_b16": _made(StyleGenerator, step(numbers(16, 256))),
        "bilinear_unet_b8": _made(
            BilinearUNet, step(numbers(8, 3, side, side), classes(4, 8, side, side))
        ),
    }
