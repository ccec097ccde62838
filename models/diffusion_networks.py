"""Networks that predict the noise of images."""

import torch
from torch import nn
from torch.nn import functional as F


def _modulated(x, shift, scale):
    return x * (1 + scale) + shift


class _Block(nn.Module):
    """Attention and a perceptron, each behind a norm without weights: a linear map of the condition
    gives their shifts, scales and gates."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.condition = nn.Linear(width, 6 * width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attend(self, x):
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return self.out(mixed.reshape(batch, tokens, width))

    def forward(self, x, condition):
        parts = self.condition(F.silu(condition))[:, None].chunk(6, -1)
        shift, scale, gate = parts[:3]
        x = x + gate * self.attend(_modulated(self.norm(x), shift, scale))
        shift, scale, gate = parts[3:]
        hidden = F.gelu(self.up(_modulated(self.norm(x), shift, scale)), approximate="tanh")
        return x + gate * self.down(hidden)


class DiffusionTransformer(nn.Module):
    """Latents [N, 4, 32, 32], times [N], classes [N], noise [N, 256, 16] -> mean squared error: after
    Peebles and Xie 2023, with patches of 2 x 2 and no norm before the last map. The tokens of the
    first convolution are transposed by strides alone, and so lie side by side in all that is saved
    of the residual stream."""

    def __init__(self, width=768, heads=12, blocks=6, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(4, width, 2, 2)
        self.positions = nn.Parameter(0.02 * torch.randn(1, 256, width))
        self.times = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.classes = nn.Embedding(classes, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(blocks))
        self.head = nn.Linear(width, 16)

    def forward(self, latents, times, classes, noise):
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.positions
        frequencies = torch.exp(-0.07 * torch.arange(128, device=times.device))
        angles = times[:, None] * frequencies
        condition = self.times(torch.cat([angles.sin(), angles.cos()], 1)) + self.classes(classes)
        for block in self.blocks:
            x = block(x, condition)
        return F.mse_loss(self.head(x), noise)
