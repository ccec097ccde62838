"""Tiny image models: one of each kind of layer that image networks are made of. Each runs in well
under a second on a CPU."""

import torch
from torch import nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    def __init__(self, inputs, width, stride=1):
        super().__init__()
        self.first = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.head = nn.Linear(16, classes)

    def forward(self, x, labels):
        x = self.blocks(self.pool(F.relu(self.norm(self.stem(x)))))
        x = torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)
        return F.cross_entropy(self.head(x), labels)


class SqueezeExcite(nn.Module):
    def __init__(self, width, squeezed):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, squeezed, 1), nn.Conv2d(squeezed, width, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.expand(F.relu(self.reduce(scale))))


class InvertedResidual(nn.Module):
    def __init__(self, inputs, hidden, outputs, kernel, stride):
        super().__init__()
        self.residual = inputs == outputs and stride == 1
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.Hardswish(),
            nn.Conv2d(hidden, hidden, kernel, stride, kernel // 2, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.Hardswish(),
            SqueezeExcite(hidden, 4),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()
        )
        # What lies behind a block keeps the gradients of its last norm from cancelling: a norm or a
        # mean reads it next.
        self.blocks = nn.Sequential(
            InvertedResidual(8, 16, 8, 3, 1), nn.Hardswish(),
            InvertedResidual(8, 24, 12, 5, 2), nn.Hardswish(),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(12, 20), nn.Hardswish(), nn.Linear(20, classes))

    def forward(self, x, labels):
        x = self.blocks(self.stem(x)).mean((2, 3))
        return F.cross_entropy(self.head(x), labels)


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of an image."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.second(F.gelu(self.first(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 4, 4), ChannelNorm(8))
        self.layers = nn.Sequential(
            ConvNextBlock(8), ChannelNorm(8), nn.Conv2d(8, 16, 2, 2), ConvNextBlock(16)
        )
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, classes)

    def forward(self, x, labels):
        x = self.layers(self.stem(x)).mean((2, 3))
        return F.cross_entropy(self.head(self.norm(x)), labels)


class Encoder(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.second(F.gelu(self.first(self.norms[1](x))))


class Vit(nn.Module):
    def __init__(self, width=24, patches=16, classes=10):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, patches + 1, width))
        self.layers = nn.Sequential(Encoder(width, 3), Encoder(width, 3))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x, labels):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return F.cross_entropy(self.head(self.norm(self.layers(x))[:, 0]), labels)


def _double_convolution(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.down = nn.ModuleList([_double_convolution(3, 6), _double_convolution(6, 12)])
        self.bottom = _double_convolution(12, 16)
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(16, 12, 2, 2), nn.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1)]
        )
        self.merge = nn.ModuleList([_double_convolution(24, 12), _double_convolution(12, 6)])
        self.head = nn.Conv2d(6, classes, 1)

    def forward(self, x, labels):
        skips = []
        for block in self.down:
            skips.append(block(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return F.cross_entropy(self.head(x), labels)


def _images(classes=10, side=32, batch=2):
    return torch.randn(batch, 3, side, side), torch.randint(0, classes, (batch,))


def _unet():
    return UNet(), (torch.randn(2, 3, 16, 16), torch.randint(0, 3, (2, 16, 16)))


MODELS = {
    "resnet": lambda: (ResNet(), _images()),
    # Its norms see few pixels: with two images a rounding grows to 1e-5 of a gradient.
    "mobilenet": lambda: (MobileNet(), _images(batch=4)),
    "convnext": lambda: (ConvNext(), _images()),
    "vit": lambda: (Vit(), _images()),
    "unet": _unet,
}


def make(name, dtype=torch.float32, channels_last=False):
    """(model, args), the same each time. Vectors get noise: behind a norm of gain one and bias zero
    some gradients cancel, and a gradient that misses their factor would not show."""
    torch.manual_seed(0)
    model, (images, labels) = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model, images = model.to(dtype), images.to(dtype)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    return model, (images, labels)
