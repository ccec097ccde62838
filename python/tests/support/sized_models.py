"""Models of sizes that vary: tokens in batches, and images, with what follows from both."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 37


class Gpt(nn.Module):
    """A decoder of ids [batch, length], at most 1024, and its loss."""

    def __init__(self, width=16, heads=2, blocks=1):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(_Block(width, heads, causal=True) for _ in range(blocks))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.out(self.norm(x)).flatten(0, 1), ids.flatten())


class Bert(nn.Module):
    """An encoder whose scores lie in memory, [batch, heads, length, length], and the mean of what it
    gives at all places but the last."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(VOCABULARY, width), nn.LayerNorm(width)
        self.block, self.out = _Block(width, heads, causal=False), nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.block(self.norm(self.tokens(ids)))
        logits = self.out(x[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) / ids.shape[1]


class _Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).split(width, 2)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        if self.causal:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = torch.softmax(torch.tanh(q @ k.transpose(2, 3)), -1) @ v
        x = x + self.project(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Cnn(nn.Module):
    """Convolutions with strides, batch norms and a mean, of images [batch, 3, height, width]."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4)
        self.deep, self.across = nn.Conv2d(4, 8, 3, 2, 1), nn.Conv2d(4, 8, 1, 2, bias=False)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(self.deep(x)) + self.across(x)
        return self.out(x.mean((2, 3))).square().mean()


class Pooled(nn.Module):
    """A max pool with padding, whose backward has other ops at odd and at even extents."""

    def __init__(self):
        super().__init__()
        self.stem, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        return self.out(x.mean((2, 3))).square().mean()


def ids(batch, length):
    return torch.randint(VOCABULARY, (batch, length))


def images(batch, height, width):
    return torch.randn(batch, 3, height, width, dtype=torch.float64)


# name: (model, inputs, sizes, how many translations the graphs that PyTorch makes of it need)
CASES = {
    "gpt": (Gpt, ids, [(3, 17), (2, 31), (5, 64), (2, 2), (2, 1024), (7, 128)], [1]),
    "bert": (Bert, ids, [(3, 17), (2, 31), (5, 64), (2, 3), (13, 128)], [1]),
    "cnn": (Cnn, images, [(3, 20, 36), (2, 31, 37), (5, 64, 32), (7, 9, 128)], [1, 1]),
    "pooled": (Pooled, images, [(4, 20, 36), (2, 30, 38), (5, 21, 33), (7, 35, 17), (3, 64, 8)], [1, 1]),
}
