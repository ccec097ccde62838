"""Ops of particular fields, as op_models.py has its ops: pairs of proteins, recurrences of sequence
models, geometry, images' losses, and losses of representations."""

import torch
from torch import nn
from torch.nn import functional as F
from workloads.weighted import BF16, FP32, Loss, Weighted, given, parameter, row_of, weighted


# Pairs and sequences.


def triangle_multiplication(residues, width):
    """AlphaFold's: edges of triangles multiplied channel by channel, gated and normalised."""

    def op(pair, scale, gate, value, out):
        x = F.layer_norm(pair, (width,), scale)
        gated = F.linear(x, gate).sigmoid() * F.linear(x, value)
        left, right = gated.chunk(2, -1)
        met = torch.einsum("ikc,jkc->ijc", left, right)
        return F.linear(F.layer_norm(met, (width,)), out)

    tensors = dict(
        scale=parameter(width), gate=parameter(2 * width, width),
        value=parameter(2 * width, width), out=parameter(width, width),
    )  # fmt: skip
    shape = (residues, residues, width)
    return Weighted(op, **tensors), (given(*shape), torch.randn(shape, dtype=BF16))


def outer_product_mean(sequences, residues, width, results):
    """AlphaFold's: of each two residues the mean of outer products over the sequences."""

    def op(x, y, out):
        met = torch.einsum("sic,sjd->ijcd", x, y) / sequences
        return F.linear(met.flatten(2), out)

    tensors = given(sequences, residues, width), given(sequences, residues, width)
    weight = torch.randn(residues, residues, results, dtype=BF16)
    return Weighted(op, out=parameter(results, width**2)), (*tensors, weight)


def linear_attention(batch, heads, length, width):
    """Attention by features of queries and keys, without a mask."""

    def op(q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("bhnd,bhne->bhde", k, v)
        norm = torch.einsum("bhnd,bhd->bhn", q, k.sum(2))
        return torch.einsum("bhnd,bhde->bhne", q, state) / (norm[..., None] + 1e-6)

    return weighted(op, (batch, heads, length, width), inputs=3)


def retention(batch, heads, length, width):
    """RetNet's: scores that decay with distance, without a softmax."""

    def op(q, k, v):
        place = torch.arange(length, device=q.device)
        rate = torch.log(1 - 2.0 ** (-5.0 - torch.arange(heads, device=q.device)))
        past = (place[:, None] - place).clamp_min(0)
        decay = torch.exp(past * rate[:, None, None]).masked_fill(place[:, None] < place, 0)
        scores = (q @ k.transpose(-1, -2)) * width**-0.5 * decay
        return scores.to(BF16) @ v

    return weighted(op, (batch, heads, length, width), inputs=3)


def chunked_states(batch, heads, length, chunk, width, state):
    """Mamba-2's products within chunks: scores that decay by sums of what is between two places."""

    def op(x, decays, keys, queries):
        parts = (batch, length // chunk, chunk)
        x, decays = x.reshape(*parts, heads, width), decays.reshape(*parts, heads)
        keys, queries = keys.reshape(*parts, state), queries.reshape(*parts, state)
        total = F.softplus(decays).neg().cumsum(2)
        ahead = torch.ones(chunk, chunk, dtype=torch.bool, device=x.device).triu(1)
        between = total[:, :, :, None] - total[:, :, None]
        decay = torch.exp(between.masked_fill(ahead[:, :, None], float("-inf")))
        scores = torch.einsum("bcin,bcjn->bcij", queries, keys)
        met = (scores[..., None] * decay).to(BF16)
        return torch.einsum("bcijh,bcjhp->bcihp", met, x)

    tensors = (
        given(batch, length, heads, width), given(batch, length, heads, dtype=FP32),
        given(batch, length, state), given(batch, length, state),
    )  # fmt: skip
    weight = torch.randn(batch, length // chunk, chunk, heads, width, dtype=BF16)
    return Weighted(op), (*tensors, weight)


def token_shift(batch, length, width):
    """RWKV's: each token mixed with the one before, three times, and a square of a ReLU."""

    def op(x, key, value, gate):
        before = F.pad(x, (0, 0, 1, -1))
        mixed = [torch.lerp(x, before, m) for m in (key, value, gate)]
        return F.relu(mixed[0]) ** 2, mixed[1], mixed[2].sigmoid()

    shape = (batch, length, width)
    weights = torch.randn(3, *shape, dtype=BF16)
    tensors = {name: parameter(width) for name in ("key", "value", "gate")}
    return Weighted(op, results=3, **tensors), (given(*shape), *weights)


def relative_scores(batch, heads, length):
    """Transformer-XL's: scores of distances moved so that each row's own distance is 0."""

    def op(scores, distances):
        padded = F.pad(distances, (1, 0)).reshape(batch, heads, length + 1, length)
        return (scores + padded[:, :, 1:]).softmax(-1)

    return weighted(op, (batch, heads, length, length), inputs=2)


def biased_softmax(batch, heads, length):
    """Scores with a bias by head and distance, as ALiBi has it, and a mask of what lies ahead."""

    def op(scores, slopes):
        place = torch.arange(length, device=scores.device)
        past = place[:, None] - place
        x = scores - slopes.exp()[:, None, None] * past
        return x.masked_fill(past < 0, float("-inf")).softmax(-1)

    shape = (batch, heads, length, length)
    return Weighted(op, slopes=parameter(heads)), (given(*shape), torch.randn(shape, dtype=BF16))


def sinkhorn(batch, rows, columns, steps):
    """Rows and columns of scores normalised by turns, in logarithms."""

    def op(x):
        for _ in range(steps):
            x = x - x.logsumexp(-1, keepdim=True)
            x = x - x.logsumexp(-2, keepdim=True)
        return x.exp()

    return weighted(op, (batch, rows, columns), FP32)


def chain_of_tags(batch, steps, tags):
    """The normaliser of a conditional random field along a chain."""

    def op(scores, moves):
        total = scores[:, 0]
        for step in range(1, steps):
            total = (total[:, :, None] + moves).logsumexp(1) + scores[:, step]
        return total.logsumexp(-1).mean()

    return Loss(op, moves=parameter(tags, tags, dtype=FP32)), (
        given(batch, steps, tags, dtype=FP32),
    )


# Geometry and fields.


def rotated_points(points):
    """Points rotated by quaternions that are normalised first."""

    def op(quaternions, points):
        w, x, y, z = F.normalize(quaternions, dim=-1).unbind(-1)
        rows = (
            1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
        )  # fmt: skip
        matrices = torch.stack(rows, -1).reshape(-1, 3, 3)
        return (matrices * points[:, None]).sum(-1)

    tensors = given(points, 4, dtype=FP32), given(points, 3, dtype=FP32)
    return Weighted(op), (*tensors, torch.randn(points, 3))


def splat_covariances(points):
    """Gaussians' covariances from scales and quaternions, the upper triangle of each."""

    def op(scales, quaternions):
        w, x, y, z = F.normalize(quaternions, dim=-1).unbind(-1)
        first = torch.stack((1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)), -1)
        second = torch.stack(
            (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)), -1
        )
        third = torch.stack((2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)), -1)
        rows = [row * scales.exp() for row in (first, second, third)]
        pairs = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
        return torch.stack([(rows[i] * rows[j]).sum(-1) for i, j in pairs], -1)

    tensors = given(points, 3, dtype=FP32), given(points, 4, dtype=FP32)
    return Weighted(op), (*tensors, torch.randn(points, 6))


def positions_in_waves(points, waves):
    """Sines and cosines of coordinates at powers of two, as radiance fields begin."""

    def op(x):
        x = x[..., None] * 2.0 ** torch.arange(waves, device=x.device)
        return torch.cat((x.sin(), x.cos()), -1).flatten(1)

    return weighted(op, (points, 3), FP32, result=(points, 6 * waves))


def rendered_rays(rays, samples):
    """Colours along rays by density: transmittance is a product over the samples before."""

    def op(density, colour, step):
        alpha = 1 - torch.exp(-F.softplus(density) * step)
        past = torch.cumprod(1 - alpha + 1e-10, -1)
        weights = alpha * F.pad(past, (1, -1), value=1.0)
        return (weights[..., None] * colour.sigmoid()).sum(1)

    tensors = (
        given(rays, samples, dtype=FP32), given(rays, samples, 3, dtype=FP32),
        torch.rand(rays, samples) / 64,
    )  # fmt: skip
    return Weighted(op), (*tensors, torch.randn(rays, 3))


def spline_features(rows, columns, knots):
    """Kolmogorov-Arnold layers' basis: cubic B-splines of each element by Cox and de Boor."""

    def op(x):
        grid = torch.linspace(-1.5, 1.5, knots + 4, device=x.device)
        x = x.tanh()[..., None]
        basis = ((x >= grid[:-1]) & (x < grid[1:])).to(x.dtype)
        for order in range(1, 4):
            rising = (x - grid[: -order - 1]) / (grid[order:-1] - grid[: -order - 1])
            falling = (grid[order + 1 :] - x) / (grid[order + 1 :] - grid[1:-order])
            basis = rising * basis[..., :-1] + falling * basis[..., 1:]
        return basis

    return weighted(op, (rows, columns), FP32, result=(rows, columns, knots))


def radial_features(pairs, centres):
    """Gaussians of distances under a smooth cutoff, as networks of molecules begin."""

    def op(vectors, means, widths):
        distance = vectors.square().sum(-1, keepdim=True).sqrt()
        cutoff = 0.5 * (torch.cos(distance.clamp(max=3.0) * (torch.pi / 3)) + 1)
        return torch.exp(-F.softplus(widths) * (distance - means) ** 2) * cutoff

    tensors = dict(means=parameter(centres, dtype=FP32), widths=parameter(centres, dtype=FP32))
    return Weighted(op, **tensors), (given(pairs, 3, dtype=FP32), torch.randn(pairs, centres))


# Losses of images and boxes.


def structural_similarity(batch, channels, edge):
    """Of two images, by means and variances under a window of 7 x 7."""

    def op(x, y):
        mean = lambda t: F.avg_pool2d(t, 7, 1)  # noqa: E731
        a, b = mean(x), mean(y)
        xx, yy, xy = mean(x * x) - a * a, mean(y * y) - b * b, mean(x * y) - a * b
        above = (2 * a * b + 1e-4) * (2 * xy + 9e-4)
        return 1 - (above / ((a * a + b * b + 1e-4) * (xx + yy + 9e-4))).mean()

    image = torch.randn(batch, channels, edge, edge)
    return Loss(op), (given(batch, channels, edge, edge, dtype=FP32), image)


def total_variation(batch, channels, edge):
    def op(x):
        down, right = x[..., 1:, :] - x[..., :-1, :], x[..., 1:] - x[..., :-1]
        return down.abs().mean() + (right**2 + 1e-6).sqrt().mean()

    return Loss(op), (given(batch, channels, edge, edge, dtype=FP32),)


def box_overlaps(boxes):
    """The generalised overlap of boxes and what they should be, with a smooth distance."""

    def op(found, wanted):
        low = torch.minimum(found[:, :2], wanted[:, :2]), torch.maximum(found[:, :2], wanted[:, :2])
        high = torch.maximum(found[:, 2:], wanted[:, 2:]), torch.minimum(found[:, 2:], wanted[:, 2:])
        met = (high[1] - low[1]).clamp_min(0).prod(-1)
        around = (high[0] - low[0]).clamp_min(0).prod(-1)
        area = lambda b: (b[:, 2:] - b[:, :2]).prod(-1)  # noqa: E731
        union = area(found) + area(wanted) - met
        overlap = met / (union + 1e-7) - (around - union) / (around + 1e-7)
        return (1 - overlap).mean() + F.smooth_l1_loss(found, wanted)

    corners = torch.rand(2, boxes, 2), torch.rand(2, boxes, 2) + 0.1
    found, wanted = torch.cat((corners[0], corners[0] + corners[1]), -1)
    return Loss(op), (found.requires_grad_(), wanted)


def expected_places(batch, points, edge):
    """Heat maps' expected coordinates."""

    def op(x):
        x = x.flatten(2).softmax(-1).reshape(x.shape)
        line = torch.linspace(0, 1, edge, device=x.device)
        return torch.stack(((x.sum(2) * line).sum(-1), (x.sum(3) * line).sum(-1)), -1)

    return weighted(op, (batch, points, edge, edge), FP32, result=(batch, points, 2))


# Losses and layers of representations.


def squashed_capsules(batch, capsules, width):
    def op(x):
        square = x.square().sum(-1, keepdim=True)
        return x * square / ((1 + square) * (square + 1e-8).sqrt())

    return weighted(op, (batch, capsules, width), FP32)


def factorisation(rows, fields, width):
    """Half of the sum's square less the squares' sum."""
    op = lambda x: 0.5 * (x.sum(1) ** 2 - (x**2).sum(1))  # noqa: E731
    return weighted(op, (rows, fields, width), result=(rows, width))


def gaussian_kernel(rows, columns, width):
    """Kernels of distances between two sets of points, by a product of matrices."""

    def op(x, y):
        squares = x.square().sum(-1)[:, None] + y.square().sum(-1) - 2 * (x @ y.T)
        return torch.exp(-squares.clamp_min(0) / width)

    tensors = given(rows, width, dtype=FP32), given(columns, width, dtype=FP32)
    return Weighted(op), (*tensors, torch.randn(rows, columns))


def decorrelation(rows, width):
    """Barlow Twins': the correlations of two views' columns against the identity."""

    def op(x, y):
        x, y = ((t - t.mean(0)) / (t.std(0) + 1e-5) for t in (x, y))
        met = x.T @ y / rows
        own = torch.eye(width, device=x.device)
        return ((met - own) ** 2 * (own + 0.005 * (1 - own))).sum()

    tensors = given(rows, width, dtype=FP32), given(rows, width, dtype=FP32)
    return Loss(op), tensors


def self_distillation(rows, columns, crops):
    """DINO's: several crops' log-softmax against a teacher's centred one."""

    def op(student, teacher, centre):
        wanted = ((teacher - centre) / 0.04).softmax(-1)
        return -(wanted * (student / 0.1).log_softmax(-1)).sum(-1).mean()

    tensors = given(crops, rows, columns), torch.randn(rows, columns, dtype=BF16)
    return Loss(op), (*tensors, torch.randn(columns, dtype=BF16))


def mixture_density(rows, parts, width):
    """The negative logarithm of a mixture of Gaussians."""

    def op(shares, means, scales, x):
        away = (x[:, None] - means) * torch.exp(-scales)
        each = -0.5 * (away**2).sum(-1) - scales.sum(-1) + shares.log_softmax(-1)
        return -each.logsumexp(-1).mean()

    tensors = (
        given(rows, parts, dtype=FP32), given(rows, parts, width, dtype=FP32),
        given(rows, parts, width, dtype=FP32), torch.randn(rows, width),
    )  # fmt: skip
    return Loss(op), tensors


def variational_loss(rows, width):
    """A sample by mean and logarithm of variance, and how far these are from the standard's."""

    def op(mean, variance, noise, other):
        sample = mean + noise * torch.exp(0.5 * variance)
        far = -0.5 * (1 + variance - mean**2 - variance.exp()).sum(-1).mean()
        return far + F.mse_loss(sample, other)

    tensors = given(rows, width, dtype=FP32), given(rows, width, dtype=FP32)
    return Loss(op), (*tensors, torch.randn(rows, width), torch.randn(rows, width))


def code_book(rows, codes, width):
    """A vector quantiser's losses, straight through to what is quantised."""

    def op(x, near, table):
        chosen = F.embedding(near, table)
        losses = F.mse_loss(chosen, x.detach()) + 0.25 * F.mse_loss(x, chosen.detach())
        return losses + (x + (chosen - x).detach()).square().mean()

    near = torch.randint(codes, (rows,))
    return Loss(op, table=parameter(codes, width, dtype=FP32)), (
        given(rows, width, dtype=FP32), near,
    )  # fmt: skip


def straight_through_choice(rows, columns):
    """A softmax of perturbed scores, taken as the greatest's indicator forward."""

    def op(x, noise):
        soft = ((x + noise) / 0.5).softmax(-1)
        hard = F.one_hot(soft.argmax(-1), columns).to(soft.dtype)
        return hard - soft.detach() + soft

    shape = (rows, columns)
    noise, weight = torch.randn(2, *shape, dtype=BF16)
    return Weighted(op), (given(*shape), noise, weight)


def grouped_aggregates(nodes, neighbours, width):
    """Mean, greatest, least and deviation over a node's neighbours, as PNA has them."""

    def op(x):
        deviation = (x.var(1, correction=0) + 1e-5).sqrt()
        return torch.cat((x.mean(1), x.amax(1), x.amin(1), deviation), -1)

    return weighted(op, (nodes, neighbours, width), FP32, result=(nodes, 4 * width))


_ROWS = dict(rows=5, columns=8)
_IMAGE = dict(batch=2, channels=3, edge=9)

# name: (maker, its sizes, sizes that a CPU runs through in no time)
MODELS = {
    **row_of(triangle_multiplication, dict(residues=256, width=128), dict(residues=5, width=8)),
    **row_of(outer_product_mean, dict(sequences=128, residues=128, width=32, results=128),
           dict(sequences=3, residues=4, width=4, results=6)),
    **row_of(linear_attention, dict(batch=4, heads=16, length=4096, width=64),
           dict(batch=2, heads=2, length=5, width=4)),
    **row_of(retention, dict(batch=4, heads=8, length=1024, width=64),
           dict(batch=2, heads=2, length=5, width=4)),
    **row_of(chunked_states, dict(batch=4, heads=24, length=4096, chunk=128, width=64, state=64),
           dict(batch=2, heads=2, length=8, chunk=4, width=4, state=4)),
    **row_of(token_shift, dict(batch=8, length=2048, width=1024),
           dict(batch=2, length=5, width=8)),
    **row_of(relative_scores, dict(batch=4, heads=12, length=1024),
           dict(batch=2, heads=2, length=5)),
    **row_of(biased_softmax, dict(batch=4, heads=12, length=1024),
           dict(batch=2, heads=2, length=5)),
    **row_of(sinkhorn, dict(batch=64, rows=256, columns=256, steps=3),
           dict(batch=2, steps=2, **_ROWS)),
    **row_of(chain_of_tags, dict(batch=1024, steps=16, tags=32), dict(batch=2, steps=3, tags=4)),
    **row_of(rotated_points, dict(points=1_000_000), dict(points=7)),
    **row_of(splat_covariances, dict(points=1_000_000), dict(points=7)),
    **row_of(positions_in_waves, dict(points=500_000, waves=10), dict(points=7, waves=3)),
    **row_of(rendered_rays, dict(rays=16384, samples=128), dict(rays=5, samples=6)),
    **row_of(spline_features, dict(rows=16384, columns=128, knots=8),
           dict(rows=5, columns=4, knots=5)),
    **row_of(radial_features, dict(pairs=500_000, centres=50), dict(pairs=7, centres=5)),
    **row_of(structural_similarity, dict(batch=16, channels=3, edge=256), _IMAGE),
    **row_of(total_variation, dict(batch=16, channels=3, edge=512), _IMAGE),
    **row_of(box_overlaps, dict(boxes=1_000_000), dict(boxes=7)),
    **row_of(expected_places, dict(batch=64, points=17, edge=64),
           dict(batch=2, points=3, edge=5)),
    **row_of(squashed_capsules, dict(batch=512, capsules=1152, width=16),
           dict(batch=2, capsules=3, width=5)),
    **row_of(factorisation, dict(rows=32768, fields=39, width=16),
           dict(rows=5, fields=3, width=4)),
    **row_of(gaussian_kernel, dict(rows=4096, columns=4096, width=64), dict(width=4, **_ROWS)),
    **row_of(decorrelation, dict(rows=2048, width=2048), dict(rows=5, width=8)),
    **row_of(self_distillation, dict(rows=64, columns=65536, crops=8), dict(crops=2, **_ROWS)),
    **row_of(mixture_density, dict(rows=65536, parts=8, width=16),
           dict(rows=5, parts=3, width=4)),
    **row_of(variational_loss, dict(rows=65536, width=256), dict(rows=5, width=8)),
    **row_of(code_book, dict(rows=65536, codes=1024, width=256),
           dict(rows=7, codes=5, width=8)),
    **row_of(straight_through_choice, dict(rows=16384, columns=1000), _ROWS),
    **row_of(grouped_aggregates, dict(nodes=16384, neighbours=16, width=128),
           dict(nodes=5, neighbours=3, width=8)),
}  # fmt: skip
