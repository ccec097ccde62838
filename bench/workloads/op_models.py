"""Single ops and graph networks that bench/ops.py measures. make(name, device) gives a model and
its arguments, capture(name, device) its backward graph. A name is that of a row, with _tiny behind it
for its small sizes, or with others: softmax_4096x12672:rows=65536,columns=77.

A model is a module whose call gives a loss. What is no loss by itself is multiplied by a tensor and
summed: the backward is then given that tensor times a number, as in training it is given the
gradient of a later layer. Floats of single ops are bf16, but fp32 in clamped norms, in spherical
harmonics and where a name says so. Parameters and arguments are made on the device.
"""

import inspect
import math

import torch
from by_name import options_of
from torch import nn
from torch.nn import functional as F
from workloads import block_ops, field_ops, fp8_models, image_ops, moving_ops, row_ops
from workloads.weighted import BF16, FP32, Loss, Weighted, given, parameter, rows_of, weighted, zipf


# Norms and softmaxes.


def rms_norm(rows, columns):
    return weighted(nn.RMSNorm(columns, eps=1e-6, dtype=BF16), (rows, columns))


def layer_norm(rows, columns):
    return weighted(nn.LayerNorm(columns, dtype=BF16), (rows, columns))


def batch_norm(batch, channels, edge):
    return weighted(nn.BatchNorm2d(channels, dtype=BF16), (batch, channels, edge, edge))


def group_norm(batch, channels, edge, groups=32):
    return weighted(nn.GroupNorm(groups, channels, dtype=BF16), (batch, channels, edge, edge))


def softmax(rows, columns):
    return weighted(nn.Softmax(-1), (rows, columns))


def log_softmax(rows, columns):
    return weighted(nn.LogSoftmax(-1), (rows, columns))


def clamped_norm(rows, columns, whole=False):
    """x over its rows' norms, or over that of all of x, where these exceed 1."""

    def op(x):
        norm = x.norm() if whole else x.norm(dim=-1, keepdim=True)
        return x / norm.clamp(min=1)

    return weighted(op, (rows, columns), FP32)


def variance_and_maximum(rows, columns):
    op = Weighted(lambda x: (x.var(-1), x.amax(-1)), results=2)
    return op, (given(rows, columns), *torch.randn(2, rows, dtype=BF16))


# Losses.


def cross_entropy(rows, columns):
    op = Loss(lambda logits, classes: F.cross_entropy(logits.float(), classes))
    return op, (given(rows, columns), torch.randint(0, columns, (rows,)))


def linear_cross_entropy(rows, width, columns):
    """The head of a language model and its loss."""

    def op(x, classes, table):
        return F.cross_entropy(F.linear(x, table).float(), classes)

    table = nn.Parameter(torch.randn(columns, width, dtype=BF16) / width**0.5)
    return Loss(op, table=table), (given(rows, width), torch.randint(0, columns, (rows,)))


def _log_probabilities(rows, columns):
    return torch.randn(rows, columns, dtype=BF16).log_softmax(-1)


def kl_divergence(rows, columns):
    op = Loss(lambda x, y: F.kl_div(x.float(), y.float(), reduction="batchmean", log_target=True))
    tensors = _log_probabilities(rows, columns).requires_grad_()
    return op, (tensors, _log_probabilities(rows, columns))


def jensen_shannon(rows, columns, beta=0.5):
    """Of log-probabilities: the divergences of both from their mean, by rows."""

    def op(x, y):
        x, y = x.float(), y.float()
        mean = torch.lerp(x.exp(), y.exp(), beta).log()
        ours, theirs = (F.kl_div(mean, t, reduction="none", log_target=True) for t in (x, y))
        return (beta * theirs + (1 - beta) * ours).sum() / len(x)

    tensors = _log_probabilities(rows, columns).requires_grad_()
    return Loss(op), (tensors, _log_probabilities(rows, columns))


# Pointwise ops.


def swiglu(rows, columns):
    return weighted(lambda a, b: F.silu(a) * b, (rows, columns), inputs=2)


def geglu(rows, columns):
    return weighted(lambda a, b: F.gelu(a, approximate="tanh") * b, (rows, columns), inputs=2)


def bias_gelu(rows, columns):
    op = Weighted(lambda x, bias: F.gelu(x + bias), bias=parameter(columns))
    return op, (given(rows, columns), torch.randn(rows, columns, dtype=BF16))


def dropout(rows, columns):
    return weighted(nn.Dropout(0.1), (rows, columns))


def rope(length, heads, key_heads, width):
    """Rotations of queries and keys as Hugging Face's models have them, and their transposition."""

    def rotated(x, cos, sin):
        x = x.transpose(1, 2)
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    angles = torch.arange(length)[:, None] * 1e4 ** (-torch.arange(0, width, 2) / width)
    angles = torch.cat((angles, angles), -1)
    cos, sin = angles.cos().to(BF16), angles.sin().to(BF16)
    op = Weighted(lambda q, k, cos, sin: (rotated(q, cos, sin), rotated(k, cos, sin)), results=2)
    weights = (torch.randn(1, h, length, width, dtype=BF16) for h in (heads, key_heads))
    tensors = given(1, length, heads, width), given(1, length, key_heads, width)
    return op, (*tensors, cos, sin, *weights)


def attention(batch, heads, length, width, causal, dtype):
    """Of heads that lie as projections leave them."""

    def op(q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    return weighted(op, (batch, length, heads, width), dtype, inputs=3)


def masked_attention(batch, heads, length, width, padded):
    """With a mask of padded keys, else with a bias by the distance, one for each head."""

    def op(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    if padded:
        mask = (torch.arange(length) < torch.linspace(length // 2, length, batch)[:, None])[
            :, None, None
        ]
    else:
        place = torch.arange(length)
        slopes = torch.linspace(0.1, 1, heads)[:, None, None]
        mask = (-slopes * (place[:, None] - place).abs()).to(BF16)[None]
    tensors = tuple(given(batch, heads, length, width) for _ in range(3))
    return Weighted(op), (*tensors, mask, torch.randn(batch, heads, length, width, dtype=BF16))


def upsampling(batch, channels, edge, mode, scale=2):
    op = nn.Upsample(scale_factor=scale, mode=mode)
    result = (batch, channels, scale * edge, scale * edge)
    return weighted(op, (batch, channels, edge, edge), result=result)


def norm_of_channels(batch, channels, edge):
    """Images divided by the length of each pixel's few channels."""

    def op(x):
        return x * ((x * x).sum(1, keepdim=True) + 1e-6).rsqrt()

    return weighted(op, (batch, channels, edge, edge))


def batch_norm_of_volumes(batch, channels, depth, edge):
    return weighted(nn.BatchNorm3d(channels, dtype=BF16), (batch, channels, depth, edge, edge))


def pairwise_differences(batch, points, width):
    """Squares of the distances of all pairs of points."""
    op = Weighted(lambda x: (x[:, :, None] - x[:, None, :]).pow(2).sum(-1))
    weight = torch.randn(batch, points, points)
    return op, (given(batch, points, width, dtype=FP32), weight)


# Rows by index.


def embedding(rows, columns, indices):
    op = Weighted(F.embedding, weight=parameter(rows, columns))
    return op, (zipf(rows, indices), torch.randn(indices, columns, dtype=BF16))


def row_pairs(rows, columns, indices):
    """Products of two rows of one table, as similarities of items have them."""
    op = Weighted(lambda one, other, table: F.embedding(one, table) * F.embedding(other, table),
                  table=parameter(rows, columns))
    return op, (
        zipf(rows, indices), zipf(rows, indices), torch.randn(indices, columns, dtype=BF16),
    )  # fmt: skip


def tied_table(rows, columns, indices):
    """One table embeds tokens and predicts the next ones, as in a language model without layers."""
    op = Weighted(lambda tokens, table: F.linear(F.embedding(tokens, table), table),
                  table=parameter(rows, columns))
    return op, (zipf(rows, indices), torch.randn(indices, rows, dtype=BF16))


def gather_rows(rows, columns, indices):
    op = Weighted(lambda x, index: x[index])
    index = torch.randint(0, rows, (indices,))
    return op, (given(rows, columns), index, torch.randn(indices, columns, dtype=BF16))


def gather_lines(lines, extent, indices, shared, dtype):
    """Elements of each line. `shared`: how many first axes of the lines the index is the same for."""
    op = Weighted(lambda x, index: x.gather(-1, index.expand(*lines, indices)))
    index = torch.randint(0, extent, (*lines[shared:], indices))
    return op, (
        given(*lines, extent, dtype=dtype),
        index,
        torch.randn(*lines, indices, dtype=dtype),
    )


def _edges(nodes, edges, skewed):
    """Both ends of edges: any nodes, or by Zipf's law, so that few nodes have most edges."""
    return (zipf if skewed else _evenly)(nodes, 2, edges)


def _evenly(below, *shape):
    return torch.randint(0, below, shape)


def message_passing(nodes, edges, width, dtype, skewed=False):
    """Each node adds up the rows of those that have an edge to it."""
    op = Weighted(lambda x, source, target: torch.zeros_like(x).index_add(0, target, x[source]))
    source, target = _edges(nodes, edges, skewed)
    x, weight = given(nodes, width, dtype=dtype), torch.randn(nodes, width, dtype=dtype)
    return op, (x, source, target, weight)


# Products and polynomials.


def narrow_linear(rows, width, results, dtype):
    op = Weighted(torch.matmul, other=parameter(width, results, dtype=dtype))
    return op, (given(rows, width, dtype=dtype), torch.randn(rows, results, dtype=dtype))


def spherical_harmonics(points, degree):
    """e3nn's polynomials, as Python writes them; their values' second moments are 1."""
    import e3nn

    e3nn.set_optimization_defaults(jit_mode="eager")
    from e3nn import o3

    op = o3.SphericalHarmonics(list(range(degree + 1)), normalize=True, normalization="component")
    weight = torch.randn(points, (degree + 1) ** 2)
    return Weighted(op), (given(points, 3, dtype=FP32), weight)


# Mixtures of experts.


def _groups(rows, groups):
    """Ends of groups, the largest of about three times the smallest's rows."""
    shares = 0.5 + torch.rand(groups)
    return (shares.cumsum(0) / shares.sum() * rows).round().to(torch.int32)


def grouped_matmul(rows, width, results, groups):
    """Each group of rows times a matrix of its own."""
    op = Weighted(
        lambda x, ends, table: torch._grouped_mm(x, table, offs=ends),
        table=parameter(groups, width, results),
    )
    weight = torch.randn(rows, results, dtype=BF16)
    return op, (given(rows, width), _groups(rows, groups), weight)


class Quantised(torch.autograd.Function):
    """Zeros, whose gradient is quantised: in FP8 it is the gradient of `eighth`, transposed if that
    has three axes, and the scales along the axis are that of `scales`."""

    @staticmethod
    def forward(ctx, eighth, scales, axis):
        ctx.axis, ctx.turned = axis, eighth.dim() == 3
        shape = eighth.mT.shape if ctx.turned else eighth.shape
        return torch.zeros(shape, dtype=BF16, device=eighth.device)

    @staticmethod
    def backward(ctx, dy):
        largest = dy.abs().amax(ctx.axis, keepdim=True).float().clamp(min=1e-12)
        scales = torch.exp2(torch.floor(torch.log2(448 / largest)))
        eighth = (dy.float() * scales).clamp(-448, 448).to(torch.float8_e4m3fn)
        return eighth.mT.contiguous() if ctx.turned else eighth, scales, None


def quantise_rows(rows, columns):
    """To FP8, with a scale a row."""
    eighth = torch.zeros(rows, columns, dtype=torch.float8_e4m3fn, requires_grad=True)
    scales = torch.zeros(rows, 1, requires_grad=True)
    op = Weighted(lambda e, s: Quantised.apply(e, s, 1))
    return op, (eighth, scales, torch.randn(rows, columns, dtype=BF16))


def quantise_experts(experts, rows, columns):
    """To FP8 by columns, with a scale a column of each expert: the result is the transpose."""
    eighth = torch.zeros(experts, columns, rows, dtype=torch.float8_e4m3fn, requires_grad=True)
    scales = torch.zeros(experts, 1, columns, requires_grad=True)
    op = Weighted(lambda e, s: Quantised.apply(e, s, 1))
    return op, (eighth, scales, torch.randn(experts, rows, columns, dtype=BF16))


class Experts(nn.Module):
    """Each token by its best experts: gated linear units, weighted by the router's softmax.

    dtype: of the parameters; the experts multiply in bf16.
    """

    def __init__(self, width, inner, experts, chosen, dtype):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False, dtype=dtype)
        self.up = nn.Parameter((torch.randn(experts, width, 2 * inner) * 0.02).to(dtype))
        self.down = nn.Parameter((torch.randn(experts, inner, width) * 0.02).to(dtype))

    def forward(self, x, wanted):
        shares, experts = self.router(x).float().softmax(-1).topk(self.chosen, -1)
        shares = shares / shares.sum(-1, keepdim=True)
        order = experts.flatten().argsort(stable=True)
        token = order // self.chosen
        ends = F.one_hot(experts.flatten(), len(self.up)).sum(0).cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(x[token], self.up.to(BF16), offs=ends).chunk(2, -1)
        made = torch._grouped_mm(F.silu(gate) * up, self.down.to(BF16), offs=ends)
        made = made * shares.flatten()[order, None].to(made.dtype)
        return F.mse_loss(torch.zeros_like(x).index_add(0, token, made).float(), wanted)


def mixture(tokens, width, inner, experts, chosen, dtype=BF16):
    model = Experts(width, inner, experts, chosen, dtype)
    return model, (given(tokens, width), torch.randn(tokens, width))


# Graph networks.


def _sums(values, target, nodes):
    """The sum of the rows of each node's edges."""
    zeros = values.new_zeros(nodes, *values.shape[1:])
    return zeros.index_add(0, target, values)


class GcnLayer(nn.Module):
    """Projected rows of the neighbours, each over the root of both degrees."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, source, target):
        ones = torch.ones_like(target, dtype=x.dtype)
        scale = _sums(ones, target, len(x)).clamp(min=1).rsqrt()
        sent = self.linear(x)[source] * (scale[source] * scale[target])[:, None]
        return _sums(sent, target, len(x))


class SageLayer(nn.Module):
    """A node's own row and the mean of its neighbours', each through a product of its own."""

    def __init__(self, width):
        super().__init__()
        self.own, self.others = nn.Linear(width, width), nn.Linear(width, width, bias=False)

    def forward(self, x, source, target):
        degree = _sums(torch.ones_like(target, dtype=x.dtype), target, len(x)).clamp(min=1)
        mean = _sums(x[source], target, len(x)) / degree[:, None]
        return self.own(x) + self.others(mean)


def weighted_messages(nodes, edges, heads, width):
    """Rows of the neighbours, each head times a weight of the edge that is learned."""
    source, target = torch.randint(0, nodes, (2, edges))
    op = Weighted(lambda x, weights, source, target: _sums(
        x[source] * weights[:, :, None], target, nodes))
    return op, (
        given(nodes, heads, width), given(edges, heads, dtype=FP32), source, target,
        torch.randn(nodes, heads, width),
    )  # fmt: skip


def edge_attention(nodes, edges, heads, width):
    """Softmax over each node's edges of the products of its query with its neighbours' keys."""
    source, target = torch.randint(0, nodes, (2, edges))

    def attend(query, key, value, source, target):
        scores = (query[target] * key[source]).sum(-1).float() / math.sqrt(width)
        weights = (scores - scores.detach().amax(0)).exp()
        total = _sums(weights, target, nodes)
        weights = weights / total[target].clamp(min=1e-16)
        return _sums(value[source] * weights[:, :, None].to(value.dtype), target, nodes)

    rows = [given(nodes, heads, width) for _ in range(3)]
    return Weighted(attend), (*rows, source, target, torch.randn(nodes, heads, width, dtype=BF16))


class GatLayer(nn.Module):
    """Attention of each node over its edges: a softmax of scores of both ends."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.linear, self.heads = nn.Linear(width, width, bias=False), heads
        self.of_source, self.of_target = (
            nn.Parameter(torch.randn(heads, width // heads) / (width // heads) ** 0.5)
            for _ in range(2)
        )

    def forward(self, x, source, target):
        rows = self.linear(x).view(len(x), self.heads, -1)
        sending, reached = (rows * self.of_source).sum(-1), (rows * self.of_target).sum(-1)
        scores = F.leaky_relu(sending[source] + reached[target], 0.2)
        lowest = torch.full_like(scores[: len(x)], -math.inf)
        largest = lowest.scatter_reduce(
            0, target[:, None].expand_as(scores), scores.detach(), "amax"
        )
        weights = (scores - largest[target]).exp()
        sums = _sums(weights, target, len(x))
        weights = weights / sums[target].clamp(min=1e-16)
        return _sums(weights[..., None] * rows[source], target, len(x)).flatten(1)


class GraphNetwork(nn.Module):
    def __init__(self, layer, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(layer(width) for _ in range(layers))

    def forward(self, x, source, target, wanted):
        for layer in self.layers:
            x = F.elu(layer(x, source, target))
        return F.mse_loss(x.float(), wanted)


def graph_network(layer, nodes, edges, width, layers, skewed=False):
    source, target = _edges(nodes, edges, skewed)
    x, wanted = torch.randn(2, nodes, width)
    return GraphNetwork(layer, width, layers), (x, source, target, wanted)


def _points(degree, tiny):
    return {
        f"spherical_harmonics_{degree}": (
            spherical_harmonics, dict(points=100_000, degree=degree), dict(points=64, degree=tiny),
        )
    }  # fmt: skip


_GRAPH = dict(nodes=20_000, edges=200_000, width=128)
_TINY_GRAPH = dict(nodes=30, edges=100, width=16)


def _network(layer):
    return (graph_network, dict(layer=layer, layers=3, **_GRAPH),
            dict(layer=layer, layers=2, **_TINY_GRAPH))  # fmt: skip


_GRAPHS = {
    "small": dict(nodes=5_000, edges=30_000, width=64),
    "large": dict(nodes=100_000, edges=2_000_000, width=32),
    "skewed": dict(skewed=True, **_GRAPH),
}


def _of_graphs(name, maker, full, tiny):
    """The same of graphs of other sizes, and of one whose few nodes have most edges."""
    return {
        f"{name}_{kind}": (maker, full | graph, tiny | dict(skewed="skewed" in graph))
        for kind, graph in _GRAPHS.items()
    }


def _mixture(name, tokens, width, inner, experts, chosen):
    """A block of experts as a model has it, with parameters of bf16 and, under autocast, of fp32; and
    its two grouped matmuls. "mixtral" is of Mixtral's form at half its width, "deepseek"
    DeepSeek-V2-Lite's, "qwen3" Qwen3-30B-A3B's, "olmoe" OLMoE-1B-7B's."""
    full = dict(tokens=tokens, width=width, inner=inner, experts=experts, chosen=chosen)
    tiny = dict(tokens=24, width=16, inner=24, experts=4, chosen=2)

    def of_groups(sizes, results, width):
        rows = sizes["tokens"] * sizes["chosen"]
        return dict(rows=rows, width=sizes[width], results=results, groups=sizes["experts"])

    return {
        f"experts_{name}": (mixture, full, tiny),
        f"experts_{name}_autocast": (mixture, full | dict(dtype=FP32), tiny | dict(dtype=FP32)),
        f"grouped_matmul_{name}_up": (
            grouped_matmul, *(of_groups(s, 2 * s["inner"], "width") for s in (full, tiny)),
        ),
        f"grouped_matmul_{name}_down": (
            grouped_matmul, *(of_groups(s, s["width"], "inner") for s in (full, tiny)),
        ),
    }  # fmt: skip


# name: (maker, its sizes, sizes that a CPU runs through in no time)
MODELS = {
    **rows_of(rms_norm, [(2048, 8192), (2048, 32768), (32768, 1024)]),
    **rows_of(layer_norm, [(4096, 1024), (4096, 5632), (4096, 15872)]),
    **rows_of(softmax, [(4096, 12672), (4096, 50257)]),
    **rows_of(log_softmax, [(4096, 50257)]),
    **rows_of(cross_entropy, [(8192, n) for n in (30522, 32000, 50257, 50304, 131072)]),
    **rows_of(jensen_shannon, [(4096, 32768)]),
    **rows_of(kl_divergence, [(4096, 32768)]),
    **rows_of(swiglu, [(16384, 11008)]),
    **rows_of(geglu, [(8192, 11008)]),
    **rows_of(bias_gelu, [(16384, 4096)]),
    **rows_of(dropout, [(16384, 4096)]),
    **rows_of(variance_and_maximum, [(8192, 4096)]),
    **rows_of(clamped_norm, [(8192, 4096)]),
    "clamped_norm_of_all": (clamped_norm, dict(rows=8192, columns=4096, whole=True),
                            dict(rows=8, columns=99, whole=True)),
    "rope": (rope, dict(length=4096, heads=32, key_heads=8, width=128),
             dict(length=5, heads=4, key_heads=2, width=8)),
    **{f"attention_{name}": (attention, sizes, dict(sizes, batch=1, heads=2, length=9))
       for name, sizes in (
           ("fp32", dict(batch=4, heads=12, length=1024, width=64, causal=True, dtype=FP32)),
           ("fp32_length_197", dict(batch=32, heads=12, length=197, width=64, causal=False, dtype=FP32)),
           ("fp32_width_128", dict(batch=2, heads=32, length=2048, width=128, causal=True, dtype=FP32)),
           ("fp32_width_32", dict(batch=512, heads=4, length=49, width=32, causal=False, dtype=FP32)))},
    "batch_norm": (batch_norm, dict(batch=32, channels=256, edge=56),
                   dict(batch=3, channels=4, edge=5)),
    "group_norm": (group_norm, dict(batch=8, channels=320, edge=64),
                   dict(batch=2, channels=8, edge=6, groups=4)),
    **{f"{mode}_upsampling": (upsampling, dict(batch=8, channels=64, edge=64, mode=mode),
                              dict(batch=1, channels=3, edge=5, mode=mode))
       for mode in ("bilinear", "nearest")},
    # Logits of segmentation, by the strides of SegFormer's, DeepLab's and FCN's heads.
    **{f"bilinear_upsampling_by_{scale}": (
           upsampling, dict(batch=4, channels=19, edge=edge, mode="bilinear", scale=scale),
           dict(batch=1, channels=2, edge=4, mode="bilinear", scale=scale))
       for scale, edge in ((4, 128), (8, 64), (16, 32))},
    **{f"attention_{name}": (
           masked_attention, dict(batch=batch, heads=heads, length=length, width=64, padded=padded),
           dict(batch=3, heads=2, length=16, width=8, padded=padded))
       for name, batch, heads, length, padded in (
           ("padded_keys", 16, 12, 512, True), ("distances", 4, 16, 1024, False))},
    **moving_ops.MODELS,
    **image_ops.MODELS,
    **row_ops.MODELS,
    **block_ops.MODELS,
    **field_ops.MODELS,
    "pairwise_differences": (pairwise_differences, dict(batch=64, points=256, width=16),
                             dict(batch=2, points=7, width=4)),
    "norm_of_channels": (norm_of_channels, dict(batch=32, channels=3, edge=256),
                         dict(batch=2, channels=3, edge=5)),
    "batch_norm_of_volumes": (batch_norm_of_volumes,
                              dict(batch=4, channels=32, depth=16, edge=64),
                              dict(batch=2, channels=3, depth=2, edge=4)),
    "embedding_32768x4096": (embedding, dict(rows=32768, columns=4096, indices=16384),
                             dict(rows=50, columns=16, indices=40)),
    "embedding_131072x1024": (embedding, dict(rows=131072, columns=1024, indices=8192),
                              dict(rows=200, columns=12, indices=20)),
    "row_pairs": (row_pairs, dict(rows=100000, columns=512, indices=16384),
                  dict(rows=50, columns=12, indices=30)),
    "tied_table": (tied_table, dict(rows=32000, columns=1024, indices=1024),
                   dict(rows=40, columns=16, indices=24)),
    "weighted_messages": (weighted_messages,
                          dict(nodes=100000, edges=1000000, heads=4, width=16),
                          dict(nodes=20, edges=60, heads=2, width=8)),
    "edge_attention": (edge_attention, dict(nodes=50000, edges=500000, heads=4, width=32),
                       dict(nodes=20, edges=60, heads=2, width=8)),
    "gather_rows": (gather_rows, dict(rows=32768, columns=1024, indices=65536),
                    dict(rows=30, columns=16, indices=50)),
    # Relative positions of DeBERTa, the chosen experts' scores, random pieces of long lines.
    **{f"gather_{name}": (gather_lines, dict(extent=extent, indices=indices, **lines),
                          dict(extent=70, indices=30, **{**lines, "lines": few}))
       for name, extent, indices, few, lines in (
           ("positions", 1024, 384, (2, 5), dict(lines=(96, 384), shared=1, dtype=BF16)),
           ("scores", 128, 24, (5,), dict(lines=(16384,), shared=0, dtype=FP32)),
           ("pieces", 16384, 1500, (5,), dict(lines=(4096,), shared=0, dtype=BF16)))},
    **{f"message_passing_{name}": (message_passing, dict(dtype=dtype, **_GRAPH),
                                   dict(dtype=dtype, **_TINY_GRAPH))
       for name, dtype in (("fp32", FP32), ("bf16", BF16))},
    **_points(3, 3), **_points(8, 5), **_points(10, 7),
    "linear_81_to_64_fp32": (narrow_linear, dict(rows=100_000, width=81, results=64, dtype=FP32),
                             dict(rows=40, width=9, results=4, dtype=FP32)),
    "linear_128_to_10": (narrow_linear, dict(rows=20_000, width=128, results=10, dtype=BF16),
                         dict(rows=40, width=16, results=5, dtype=BF16)),
    "linear_cross_entropy": (linear_cross_entropy, dict(rows=4096, width=1024, columns=32000),
                             dict(rows=8, width=16, columns=101)),
    **_mixture("mixtral", 8192, 2048, 5632, 8, 2),
    **_mixture("deepseek", 4096, 2048, 1408, 64, 6),
    **_mixture("qwen3", 8192, 2048, 768, 128, 8),
    **_mixture("olmoe", 8192, 2048, 1024, 64, 8),
    "quantise_rows": (quantise_rows, dict(rows=16640, columns=5120), dict(rows=9, columns=40)),
    "quantise_experts_16": (quantise_experts, dict(experts=16, rows=8192, columns=5120),
                            dict(experts=2, rows=48, columns=24)),
    "quantise_experts_8": (quantise_experts, dict(experts=8, rows=2048, columns=1408),
                           dict(experts=3, rows=7, columns=5)),
    "gcn": _network(GcnLayer), "graph_sage": _network(SageLayer), "gat": _network(GatLayer),
    **_of_graphs("message_passing_bf16", message_passing, dict(dtype=BF16),
                 dict(dtype=BF16, **_TINY_GRAPH)),
    **_of_graphs("gcn", *_network(GcnLayer)), **_of_graphs("gat", *_network(GatLayer)),
}  # fmt: skip
ALL = MODELS | fp8_models.MODELS  # with those that only a GPU runs
# Parameters, and data of graph networks, of fp32, products in bf16.
AUTOCASTS = {
    name
    for name, (maker, *_) in MODELS.items()
    if maker is graph_network or name.endswith("_autocast")
}
TINY = "_tiny"  # behind a name: the small sizes


def _row(name):
    """The name of the row that a name begins with."""
    return name.partition(":")[0].removesuffix(TINY)


def _maker(name):
    """(maker, sizes) of ROW, ROW_tiny or ROW:SIZE=NUMBER,.., of which the other sizes are the row's.
    Raises ValueError with what is wrong."""
    row, _, changed = name.partition(":")
    if _row(name) not in ALL:
        raise ValueError(f"no op {_row(name)!r}; there are {', '.join(ALL)}")
    maker, full, tiny = ALL[_row(name)]
    sizes = dict(tiny if row.endswith(TINY) else full)
    changes = options_of(changed, f"op {name!r}") if ":" in name else {}
    known = inspect.signature(maker).parameters
    unknown = [size for size in changes if size not in known]
    if unknown:
        raise ValueError(f"op {name!r} has no {unknown[0]}; its sizes are {', '.join(known)}")
    for size, value in changes.items():
        if isinstance(sizes.get(size, 0), int) and not (isinstance(value, int) and value > 0):
            raise ValueError(f"op {name!r}: {size} is a positive number, not {value!r}")
    return maker, sizes | changes


def check(name):
    """Raises ValueError if a name says no model."""
    _maker(name)


def autocast(name, device):
    """The context that a model's forward runs under."""
    return torch.autocast(device, BF16, enabled=_row(name) in AUTOCASTS)


def make(name, device):
    """(model, args) on the device, with the same weights and data each time."""
    maker, sizes = _maker(name)
    torch.manual_seed(0)
    with torch.device(device):
        model, args = maker(**sizes)
    return model.to(device).train(), args


def capture(name, device):
    """A model's one backward, as retrograd.translate takes it, with what its forward saved."""
    from retrograd.errors import ExportError
    from retrograd.export import captured_backwards

    torch.set_float32_matmul_precision("high")
    model, args = make(name, device)
    with autocast(name, device):
        captured = captured_backwards(model, args, keep_on_device=True, joint_passes=True)
    if len(captured) != 1:
        raise ExportError(f"{name} has graph breaks: {len(captured)} backwards instead of one")
    return captured[0]
