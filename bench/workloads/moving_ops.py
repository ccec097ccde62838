"""Ops that move elements or choose among them, as op_models.py has its ops."""

import torch
from torch import nn
from torch.nn import functional as F
from workloads.weighted import BF16, Weighted, given, rows_of, weighted


def roll(batch, edge, width, shift):
    """Of images whose channels are last, along both edges, as windows of attention are shifted."""
    shape = (batch, edge, edge, width)
    return weighted(lambda x: torch.roll(x, (shift, shift), (1, 2)), shape)


def stack(tensors, rows, columns):
    """Of tensors beside each other: their elements take turns."""
    parts = tuple(given(rows, columns) for _ in range(tensors))
    op = Weighted(lambda *x: torch.stack(x, -1))
    return op, (*parts, torch.randn(rows, columns, tensors, dtype=BF16))


def fold(batch, channels, edge, window):
    """Windows of an image, added up where they overlap."""
    places = (batch, channels * window**2, edge**2)
    op = Weighted(lambda x: F.fold(x, (edge, edge), window, padding=window // 2))
    return op, (given(*places), torch.randn(batch, channels, edge, edge, dtype=BF16))


def reflection_pad(batch, channels, edge, width):
    result = (batch, channels, edge + 2 * width, edge + 2 * width)
    return weighted(nn.ReflectionPad2d(width), (batch, channels, edge, edge), result=result)


def pixel_shuffle(batch, channels, edge):
    result = (batch, channels // 4, 2 * edge, 2 * edge)
    return weighted(nn.PixelShuffle(2), (batch, channels, edge, edge), result=result)


def average_pool(batch, channels, edge):
    """Of 3 x 3 by 2: windows overlap, and reach over the edges."""
    result = (batch, channels, -(-edge // 2), -(-edge // 2))
    return weighted(nn.AvgPool2d(3, 2, 1), (batch, channels, edge, edge), result=result)


def even_and_odd_columns(rows, columns):
    """Pairs become halves, each scaled by itself."""
    return weighted(
        lambda x: torch.cat([x[..., 0::2] * 2, x[..., 1::2] * 3], -1), (rows, columns)
    )


def repeated_heads(batch, heads, repeats, length, width):
    """Keys that several queries' heads share, stored for each of them."""
    return weighted(
        lambda x: x.repeat_interleave(repeats, 1),
        (batch, heads, length, width),
        result=(batch, heads * repeats, length, width),
    )


def sort(rows, columns):
    return weighted(lambda x: x.sort(-1).values, (rows, columns))


def topk(rows, columns, chosen):
    return weighted(lambda x: x.topk(chosen).values, (rows, columns), result=(rows, chosen))


def maximum_of_columns(batch, rows, columns):
    return weighted(lambda x: x.max(1).values, (batch, rows, columns), result=(batch, columns))


def gather_tokens(batch, length, width, chosen):
    """Tokens of each sequence by a list of its own."""
    op = Weighted(lambda x, index: x.gather(1, index[..., None].expand(-1, -1, width)))
    index = torch.randint(0, length, (batch, chosen))
    return op, (given(batch, length, width), index, torch.randn(batch, chosen, width, dtype=BF16))


def strided_pixels(batch, channels, edge):
    """Every second pixel along both edges, as a strided shortcut takes them."""
    result = (batch, channels, edge // 2, edge // 2)
    return weighted(lambda x: x[:, :, ::2, ::2] * 3, (batch, channels, edge, edge), result=result)


def pixel_unshuffle(batch, channels, edge):
    result = (batch, 4 * channels, edge // 2, edge // 2)
    return weighted(nn.PixelUnshuffle(2), (batch, channels, edge, edge), result=result)


def rotary_pairs(batch, heads, length, width):
    """Rotary positions of neighbours, as GPT-J and GLM turn them."""
    angle = torch.randn(length, width, dtype=BF16)

    def op(x, cos, sin):
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * cos + turned * sin

    shape = (batch, heads, length, width)
    return Weighted(op), (given(*shape), angle.cos(), angle.sin(), torch.randn(shape, dtype=BF16))


def gated_pairs(rows, columns):
    """A gate and what it lets through are neighbours, as in gpt-oss."""

    def op(x):
        gate = x[..., ::2]
        return gate * torch.sigmoid(1.702 * gate) * (x[..., 1::2] + 1)

    return weighted(op, (rows, columns), result=(rows, columns // 2))


def repeated_columns(rows, columns, repeats):
    return weighted(
        lambda x: x.repeat_interleave(repeats, -1), (rows, columns), result=(rows, repeats * columns)
    )


# name: (maker, its sizes, sizes that a CPU runs through in no time)
MODELS = {
    "roll": (roll, dict(batch=64, edge=56, width=96, shift=3),
             dict(batch=2, edge=5, width=4, shift=2)),
    "stack_of_4": (stack, dict(tensors=4, rows=4096, columns=1024),
                   dict(tensors=3, rows=5, columns=7)),
    "fold": (fold, dict(batch=32, channels=64, edge=56, window=3),
             dict(batch=2, channels=3, edge=6, window=3)),
    "reflection_pad": (reflection_pad, dict(batch=16, channels=64, edge=128, width=3),
                       dict(batch=2, channels=3, edge=6, width=2)),
    "pixel_shuffle": (pixel_shuffle, dict(batch=32, channels=256, edge=64),
                      dict(batch=2, channels=8, edge=3)),
    **rows_of(sort, [(8192, 1024)]),
    "topk_8_of_512": (topk, dict(rows=32768, columns=512, chosen=8),
                      dict(rows=6, columns=30, chosen=3)),
    "maximum_of_columns": (maximum_of_columns, dict(batch=64, rows=1024, columns=512),
                           dict(batch=2, rows=9, columns=5)),
    "gather_tokens": (gather_tokens, dict(batch=64, length=1024, width=256, chosen=2048),
                      dict(batch=2, length=9, width=16, chosen=11)),
    "average_pool": (average_pool, dict(batch=64, channels=64, edge=112),
                     dict(batch=2, channels=3, edge=8)),
    "even_and_odd_columns": (even_and_odd_columns, dict(rows=16384, columns=2048),
                             dict(rows=5, columns=12)),
    "repeated_heads": (repeated_heads, dict(batch=4, heads=8, repeats=4, length=2048, width=128),
                       dict(batch=2, heads=2, repeats=3, length=5, width=4)),
    "strided_pixels": (strided_pixels, dict(batch=64, channels=64, edge=112),
                       dict(batch=2, channels=3, edge=6)),
    "pixel_unshuffle": (pixel_unshuffle, dict(batch=32, channels=64, edge=128),
                        dict(batch=2, channels=3, edge=4)),
    "rotary_pairs": (rotary_pairs, dict(batch=8, heads=16, length=2048, width=64),
                     dict(batch=2, heads=2, length=5, width=8)),
    "gated_pairs": (gated_pairs, dict(rows=8192, columns=8192), dict(rows=5, columns=12)),
    "repeated_columns": (repeated_columns, dict(rows=16384, columns=1024, repeats=3),
                         dict(rows=5, columns=7, repeats=3)),
}  # fmt: skip
