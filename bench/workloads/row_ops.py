"""Ops on rows of matrices and losses of them, as op_models.py has its ops: norms of odd and of narrow
rows, losses over pairs, products and sums along rows."""

import torch
from torch import nn
from torch.nn import functional as F
from workloads.weighted import BF16, FP32, Loss, Weighted, given, parameter, row_of, rows_of, weighted


# Norms and softmaxes.


def norms_of_heads(tokens, heads, width):
    """Queries' root mean squares, head by head, as Qwen3 normalises them."""
    return weighted(nn.RMSNorm(width, eps=1e-6, dtype=BF16), (tokens, heads, width))


def layer_norm_of_odd_rows(rows, columns):
    return weighted(nn.LayerNorm(columns, dtype=BF16), (rows, columns))


def add_and_norm(rows, columns):
    """A residual and its norm, which are both used further on, as transformers have them."""

    def op(x, branch, scale):
        total = x + branch
        return total, F.rms_norm(total, (columns,), scale, 1e-6)

    shape = (rows, columns)
    weights = torch.randn(2, *shape, dtype=BF16)
    tensors = given(*shape), given(*shape), *weights
    return Weighted(op, results=2, scale=parameter(columns)), tensors


def unit_rows(rows, columns):
    """Rows over their lengths."""
    return weighted(lambda x: F.normalize(x, dim=-1), (rows, columns))


def standard_deviation(rows, columns):
    return weighted(lambda x: x.std(-1), (rows, columns), FP32, result=(rows,))


def log_sum_exp(rows, columns):
    return weighted(lambda x: x.float().logsumexp(-1), (rows, columns), result=(rows,))


def masked_softmax(batch, heads, length):
    """Scores with a mask of what lies ahead."""

    def op(x):
        ahead = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        return x.masked_fill(ahead, float("-inf")).softmax(-1)

    return weighted(op, (batch, heads, length, length))


def softmax_of_columns(batch, rows, columns):
    """Over the axis before the last one."""
    return weighted(nn.Softmax(1), (batch, rows, columns))


# Products and sums along rows.


def product(rows, columns):
    return weighted(lambda x: x.prod(-1), (rows, columns), FP32, result=(rows,))


def cumulative_sum(rows, columns):
    return weighted(lambda x: x.cumsum(-1), (rows, columns), FP32)


def stack_of_3(rows, columns):
    parts = tuple(given(rows, columns, dtype=FP32) for _ in range(3))
    op = Weighted(lambda *x: torch.stack(x, -1))
    return op, (*parts, torch.randn(rows, columns, 3))


def outer_products(batch, width):
    """Of two vectors each, as factorisation machines and bilinear layers take them."""
    op = Weighted(lambda x, y: x[:, :, None] * y[:, None, :])
    tensors = given(batch, width), given(batch, width)
    return op, (*tensors, torch.randn(batch, width, width, dtype=BF16))


def leaky_channels(rows, columns):
    """PReLU with a slope for each column."""
    op = Weighted(lambda x, slope: F.prelu(x, slope), slope=parameter(columns))
    return op, (given(rows, columns), torch.randn(rows, columns, dtype=BF16))


def packed_swiglu(rows, columns):
    """Gate and value are the halves of one matrix's rows."""

    def op(x):
        gate, value = x.chunk(2, -1)
        return F.silu(gate) * value

    return weighted(op, (rows, 2 * columns), result=(rows, columns))


# Losses.


def pair_ranking(rows, columns):
    """Each row's score against each other's: the logistic loss of those pairs that are in order."""

    def op(scores, wanted):
        differences = scores[:, :, None] - scores[:, None, :]
        ordered = wanted[:, :, None] > wanted[:, None, :]
        return (F.softplus(-differences) * ordered).sum() / rows

    return Loss(op), (given(rows, columns, dtype=FP32), torch.randn(rows, columns))


def contrastive(rows, columns):
    """Pictures and texts: each shall be nearest to its own, as CLIP is trained."""

    def op(x, y):
        scores = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T * 14.3
        own = torch.arange(rows, device=x.device)
        return (F.cross_entropy(scores.float(), own) + F.cross_entropy(scores.T.float(), own)) / 2

    return Loss(op), (given(rows, columns), given(rows, columns))


def smoothed_cross_entropy(rows, columns):
    op = Loss(lambda x, classes: F.cross_entropy(x.float(), classes, label_smoothing=0.1))
    return op, (given(rows, columns), torch.randint(0, columns, (rows,)))


def focal_loss(rows, columns):
    """Of yes and no for each column, easy ones weighed less, as detectors are trained."""

    def op(x, wanted):
        chance = torch.sigmoid(x)
        loss = F.binary_cross_entropy_with_logits(x, wanted, reduction="none")
        right = chance * wanted + (1 - chance) * (1 - wanted)
        return ((0.25 * wanted + 0.75 * (1 - wanted)) * loss * (1 - right) ** 2).sum() / rows

    wanted = (torch.rand(rows, columns) < 0.01).float()
    return Loss(op), (given(rows, columns, dtype=FP32), wanted)


def dice_loss(batch, classes, edge):
    """Of segmentations: twice what both cover over what each covers."""

    def op(x, wanted):
        chance = x.float().softmax(1)
        both, each = (chance * wanted).sum((2, 3)), (chance + wanted).sum((2, 3))
        return (1 - (2 * both + 1) / (each + 1)).mean()

    shape = (batch, classes, edge, edge)
    return Loss(op), (given(*shape), (torch.rand(shape) < 1 / classes).float())


def cross_entropy_of_pixels(batch, classes, edge):
    op = Loss(lambda x, wanted: F.cross_entropy(x.float(), wanted))
    return op, (given(batch, classes, edge, edge), torch.randint(0, classes, (batch, edge, edge)))


def smooth_distance(rows, columns):
    op = Loss(lambda x, y: F.smooth_l1_loss(x.float(), y.float()))
    return op, (given(rows, columns), torch.randn(rows, columns, dtype=BF16))


def cosine_loss(rows, columns):
    op = Loss(lambda x, y: (1 - F.cosine_similarity(x.float(), y.float(), dim=-1)).mean())
    return op, (given(rows, columns), torch.randn(rows, columns, dtype=BF16))


def triplet_loss(rows, columns):
    op = Loss(lambda x, y, z: F.triplet_margin_loss(x, y, z, margin=1.0))
    return op, tuple(given(rows, columns, dtype=FP32) for _ in range(3))


def policy_loss(rows, columns):
    """Clipped ratios of policies with their entropy, over logits of actions, as in PPO."""

    def op(logits, actions, before, advantage):
        logs = logits.float().log_softmax(-1)
        ratio = (logs.gather(1, actions[:, None])[:, 0] - before).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        entropy = -(logs.exp() * logs).sum(-1)
        return -(gain + 0.01 * entropy).mean()

    tensors = torch.randint(0, columns, (rows,)), torch.randn(rows) - 9, torch.randn(rows)
    return Loss(op), (given(rows, columns), *tensors)


def preference_loss(pairs, length, columns):
    """Log-probabilities of answers, chosen against refused ones, as in DPO."""

    def op(logits, tokens, reference):
        logs = logits.float().log_softmax(-1).gather(2, tokens[..., None])[..., 0].sum(1)
        better, worse = (logs - reference).chunk(2)
        return -F.logsigmoid(0.1 * (better - worse)).mean()

    tokens = torch.randint(0, columns, (2 * pairs, length))
    return Loss(op), (given(2 * pairs, length, columns), tokens, torch.randn(2 * pairs))


# name: (maker, its sizes, sizes that a CPU runs through in no time)
MODELS = {
    **row_of(norms_of_heads, dict(tokens=8192, heads=16, width=80), dict(tokens=5, heads=3, width=8)),
    **row_of(layer_norm_of_odd_rows, dict(rows=16384, columns=1023), dict(rows=8, columns=33)),
    **rows_of(add_and_norm, [(8192, 2048)]),
    **rows_of(unit_rows, [(32768, 768)]),
    **rows_of(standard_deviation, [(8192, 4096)]),
    **rows_of(log_sum_exp, [(8192, 4096)]),
    **row_of(masked_softmax, dict(batch=4, heads=16, length=1024),
           dict(batch=2, heads=2, length=7)),
    **row_of(softmax_of_columns, dict(batch=64, rows=196, columns=768),
           dict(batch=2, rows=9, columns=5)),
    **rows_of(product, [(16384, 256)]),
    **rows_of(cumulative_sum, [(8192, 2048)]),
    **rows_of(stack_of_3, [(4096, 2048)]),
    **row_of(outer_products, dict(batch=8192, width=64), dict(batch=5, width=6)),
    **rows_of(leaky_channels, [(16384, 2048)]),
    **rows_of(packed_swiglu, [(16384, 5632)]),
    **rows_of(pair_ranking, [(64, 512)], (3, 7)),
    **rows_of(contrastive, [(4096, 512)], (6, 16)),
    **rows_of(smoothed_cross_entropy, [(8192, 32000)]),
    **rows_of(focal_loss, [(65536, 91)]),
    **row_of(dice_loss, dict(batch=16, classes=19, edge=256), dict(batch=2, classes=3, edge=6)),
    **row_of(cross_entropy_of_pixels, dict(batch=16, classes=19, edge=256),
           dict(batch=2, classes=3, edge=6)),
    **rows_of(smooth_distance, [(16384, 2048)]),
    **rows_of(cosine_loss, [(16384, 1024)]),
    **rows_of(triplet_loss, [(16384, 512)]),
    **rows_of(policy_loss, [(16384, 1024)], (8, 20)),
    **row_of(preference_loss, dict(pairs=4, length=512, columns=32000),
           dict(pairs=2, length=5, columns=20)),
}  # fmt: skip
