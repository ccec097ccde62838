"""What the models of single ops are made of: an op whose results are multiplied by tensors and summed,
and the tensors that it is given. All are bf16 if nothing else is said, on PyTorch's default device.
"""

import math

import torch
from torch import nn

BF16, FP32 = torch.bfloat16, torch.float32


class Weighted(nn.Module):
    """The sum of op(*tensors) times the last arguments, one for each result of the op. The op is
    given the module's own `parameters` by their names."""

    def __init__(self, op, results=1, **parameters):
        super().__init__()
        self.op, self.results = op, results
        self.weights = nn.ParameterDict(parameters)

    def forward(self, *args):
        values = self.op(*args[: -self.results], **dict(self.weights.items()))
        values = values if isinstance(values, tuple) else (values,)
        return sum((v * w).sum() for v, w in zip(values, args[-self.results :]))


class Loss(nn.Module):
    """An op that is a loss."""

    def __init__(self, op, **parameters):
        super().__init__()
        self.op, self.weights = op, nn.ParameterDict(parameters)

    def forward(self, *args):
        return self.op(*args, **dict(self.weights.items()))


def given(*shape, dtype=BF16):
    """A tensor that a gradient is wanted of."""
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def parameter(*shape, dtype=BF16):
    return nn.Parameter(torch.randn(shape, dtype=dtype))


def weighted(op, shape, dtype=BF16, inputs=1, result=None):
    """A pointwise or row-wise op of tensors of one shape."""
    tensors = tuple(given(*shape, dtype=dtype) for _ in range(inputs))
    return Weighted(op), (*tensors, torch.randn(result or shape, dtype=dtype))


def zipf(below, *shape):
    """Indices of which the k-th is drawn about 1 / k as often as the first."""
    drawn = torch.exp(torch.rand(shape) * math.log(below)).long() - 1
    return drawn.clamp(0, below - 1)


def rows_of(maker, shapes, tiny=(8, 99)):
    """Entries of a maker of matrices, one for each shape."""
    return {
        f"{maker.__name__}_{rows}x{columns}": (
            maker, dict(rows=rows, columns=columns), dict(rows=tiny[0], columns=tiny[1]),
        )
        for rows, columns in shapes
    }  # fmt: skip


def row_of(maker, sizes, tiny):
    """The entry of a maker under its own name."""
    return {maker.__name__: (maker, sizes, tiny)}
