"""Models of recommendation, whose inputs are a column of indices for each table of embeddings. Decision 132
(sorts that share launches) came of them.
"""

import torch
from torch import nn
from torch.nn import functional as F


def _mlp(*widths):
    layers = [f for a, b in zip(widths, widths[1:], strict=False) for f in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers)


class Dlrm(nn.Module):
    """Products of each two of the embeddings and of the dense features (Naumov et al. 2019), and the loss of
    clicks."""

    def __init__(self, tables=26, rows=20_000, width=64, dense=13):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.dense = _mlp(dense, 512, 256, width)
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(_mlp(pairs + width, 1024, 1024, 512, 256), nn.Linear(256, 1))
        self.register_buffer("lower", torch.tril_indices(tables + 1, tables + 1, -1), False)

    def forward(self, dense, indices, clicks):
        of_dense = self.dense(dense)
        vectors = [table(indices[:, i]).to(of_dense.dtype) for i, table in enumerate(self.tables)]
        vectors = torch.stack([of_dense, *vectors], 1)
        products = vectors @ vectors.transpose(1, 2)
        pairs = products[:, self.lower[0], self.lower[1]]
        logits = self.top(torch.cat([of_dense, pairs], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logits.float(), clicks)


class DeepFm(nn.Module):
    """Squares of sums less sums of squares, a weight for each index and an MLP (Guo et al. 2017), and the loss
    of clicks."""

    def __init__(self, tables=39, rows=10_000, width=16):
        super().__init__()
        self.vectors = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.weights = nn.ModuleList(nn.Embedding(rows, 1) for _ in range(tables))
        self.deep = nn.Sequential(_mlp(tables * width, 400, 400, 400), nn.Linear(400, 1))

    def forward(self, indices, clicks):
        columns = indices.unbind(1)
        vectors = torch.stack([t(c) for t, c in zip(self.vectors, columns, strict=True)], 1)
        first = sum(t(c) for t, c in zip(self.weights, columns, strict=True)).squeeze(1)
        second = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        logits = first + second + self.deep(vectors.flatten(1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logits.float(), clicks)


def _made(network, batch, tables, rows, dense=0):
    def make(device):
        model = network(tables=tables, rows=rows).to(device).train()
        indices = torch.randint(0, rows, (batch, tables), device=device)
        clicks = torch.randint(0, 2, (batch,), device=device).float()
        numbers = (torch.randn(batch, dense, device=device),) if dense else ()
        return model, (*numbers, indices, clicks), {}

    return make


def models():
    """{name: make(device)}; what is behind a name is its batch."""
    return {
        "dlrm_b1024": _made(Dlrm, 1024, 26, 20_000, dense=13),
        "dlrm_b8192": _made(Dlrm, 8192, 26, 20_000, dense=13),
        "deepfm_b4096": _made(DeepFm, 4096, 39, 10_000),
        "deepfm_b32768": _made(DeepFm, 32_768, 39, 10_000),
    }
