"""Models that bench/ablate.py measures beside the registry's. Nothing here was made for them.
capture(name, device) gives a model's backward graph.

A model is a module whose call gives a loss. Single ops are multiplied by a tensor and summed: what
their backward is given is then that tensor times a number, as in training it is the gradient of a
later layer. Shapes of single ops are those of the backward operators of TritonBench.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, width, hidden, results=None):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, results or width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MixerBlock(nn.Module):
    """MLPs over the patches of each channel, then over the channels of each patch."""

    def __init__(self, patches, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.patches, self.channels = Mlp(patches, width // 2), Mlp(width, 4 * width)

    def forward(self, x):
        x = x + self.patches(self.norm1(x).mT).mT
        return x + self.channels(self.norm2(x))


class EncoderBlock(nn.Module):
    """Attention over all patches and an MLP, each behind a norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out, self.mlp = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            Mlp(width, 4 * width),
        )

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + self.out(attended)
        return x + self.mlp(self.norm2(x))


class PatchClassifier(nn.Module):
    """(patches [B, P, C], classes [B]) -> the mean cross entropy: an image network that is
    given patches, so that it has no convolution."""

    def __init__(self, inputs, width, classes, blocks):
        super().__init__()
        self.embed, self.blocks = nn.Linear(inputs, width), nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, patches, classes):
        x = self.embed(patches)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x).mean(1)).float(), classes)


def mixer(batch, patches, width, layers):
    return _classifier(batch, patches, width, [MixerBlock(patches, width) for _ in range(layers)])


def vit(batch, patches, width, layers, heads):
    return _classifier(batch, patches, width, [EncoderBlock(width, heads) for _ in range(layers)])


def _classifier(batch, patches, width, blocks, inputs=768, classes=1000):
    model = PatchClassifier(inputs, width, classes, blocks)
    return model, (torch.randn(batch, patches, inputs), torch.randint(0, classes, (batch,)))


def gpt2(batch, length, **sizes):
    """Dropout everywhere but in attention; a vocabulary whose rows 16 bytes do not divide."""
    import transformers

    config = transformers.GPT2Config(attn_pdrop=0.0, **sizes)
    model = transformers.GPT2LMHeadModel(config).train()
    model.loss_type = "ForCausalLM"  # unset, it logs a warning, which breaks the graph

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids, labels=ids).loss

    return Loss(), (torch.randint(0, config.vocab_size, (batch, length)),)


class MessagePassing(nn.Module):
    """Each edge makes a message of both of its ends; a node adds up those that reach it."""

    def __init__(self, width):
        super().__init__()
        self.message, self.update = (Mlp(2 * width, width, width) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, source, target):
        sent = F.silu(self.message(torch.cat((x[source], x[target]), -1)))
        gathered = torch.zeros_like(x).index_add(0, target, sent.to(x.dtype))
        return self.norm(x + self.update(torch.cat((x, gathered), -1)))


class GraphNetwork(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(MessagePassing(width) for _ in range(layers))

    def forward(self, x, source, target, wanted):
        for layer in self.layers:
            x = layer(x, source, target)
        return F.mse_loss(x.float(), wanted)


def graph_network(nodes, edges, width, layers):
    source, target = torch.randint(0, nodes, (2, edges))
    x, wanted = torch.randn(2, nodes, width)
    return GraphNetwork(width, layers), (x, source, target, wanted)


def harmonics(points, degree):
    """Real spherical harmonics of unit vectors up to a degree, [.., (degree + 1) ^ 2]: Legendre's
    functions by their recurrence in z, times the real and imaginary part of (x + iy)^m."""
    x, y, z = points.unbind(-1)
    real, imaginary = [torch.ones_like(x)], [torch.zeros_like(x)]
    for _ in range(degree):
        a, b = real[-1], imaginary[-1]
        real.append(a * x - b * y)
        imaginary.append(a * y + b * x)
    legendre = {}
    for m in range(degree + 1):
        legendre[m, m] = torch.full_like(z, float(math.prod(range(1, 2 * m, 2))))
        for n in range(m + 1, degree + 1):
            value = (2 * n - 1) * z * legendre[n - 1, m]
            if n > m + 1:
                value = value - (n + m - 1) * legendre[n - 2, m]
            legendre[n, m] = value / (n - m)
    rows = []
    for n in range(degree + 1):
        for m in range(-n, n + 1):
            k = abs(m)
            scale = math.sqrt(
                (2 * n + 1) * math.factorial(n - k) / math.factorial(n + k) * (2 if k else 1)
            )
            rows.append(scale * legendre[n, k] * (imaginary if m < 0 else real)[k])
    return torch.stack(rows, -1)


class Harmonics(nn.Module):
    def __init__(self, degree, width):
        super().__init__()
        self.degree, self.linear = degree, nn.Linear((degree + 1) ** 2, width)

    def forward(self, points):
        return (
            self.linear(harmonics(F.normalize(points, dim=-1), self.degree)).float().square().mean()
        )


def spherical_harmonics(points, degree, width=64):
    return Harmonics(degree, width), (torch.randn(points, 3, requires_grad=True),)


class Weighted(nn.Module):
    """The sum of an op's result times a tensor."""

    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, x, weight):
        return (self.op(x) * weight).sum()


class CrossEntropy(nn.Module):
    def forward(self, logits, classes):
        return F.cross_entropy(logits.float(), classes)


def _weighted(op, shape, weight_shape=None, dtype=torch.bfloat16):
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    return Weighted(op), (x, torch.randn(weight_shape or shape, dtype=dtype))


def softmax(rows, columns):
    return _weighted(nn.Softmax(-1), (rows, columns))


def layer_norm(rows, columns):
    return _weighted(nn.LayerNorm(columns).bfloat16(), (rows, columns))


def group_norm(batch, channels, edge, groups=32):
    return _weighted(nn.GroupNorm(groups, channels).bfloat16(), (batch, channels, edge, edge))


def batch_norm(batch, channels, edge):
    return _weighted(nn.BatchNorm2d(channels).bfloat16(), (batch, channels, edge, edge))


def upsampling(batch, channels, edge):
    op = nn.Upsample(scale_factor=2, mode="bilinear")
    return _weighted(op, (batch, channels, edge, edge), (batch, channels, 2 * edge, 2 * edge))


def cross_entropy(rows, columns):
    logits = torch.randn(rows, columns, dtype=torch.bfloat16, requires_grad=True)
    return CrossEntropy(), (logits, torch.randint(0, columns, (rows,)))


# name: (maker, its sizes, sizes that a CPU runs through in no time)
MODELS = {
    "mixer": (mixer, dict(batch=16, patches=196, width=512, layers=8),
              dict(batch=2, patches=12, width=32, layers=2)),
    "gpt2_dropout": (gpt2, dict(batch=4, length=1024),
                     dict(batch=1, length=24, n_embd=48, n_layer=2, n_head=3, n_positions=32,
                          vocab_size=97, bos_token_id=0, eos_token_id=0)),
    "vit_patches": (vit, dict(batch=8, patches=197, width=384, layers=12, heads=6),
                    dict(batch=2, patches=13, width=32, layers=2, heads=2)),
    "graph_network": (graph_network, dict(nodes=20_000, edges=200_000, width=128, layers=3),
                      dict(nodes=30, edges=100, width=16, layers=2)),
    "spherical_harmonics": (spherical_harmonics, dict(points=100_000, degree=4),
                            dict(points=64, degree=3, width=8)),
    "softmax": (softmax, dict(rows=4096, columns=12672), dict(rows=8, columns=99)),
    "cross_entropy": (cross_entropy, dict(rows=8192, columns=50257), dict(rows=8, columns=101)),
    "layer_norm": (layer_norm, dict(rows=4096, columns=15872), dict(rows=8, columns=96)),
    "group_norm": (group_norm, dict(batch=8, channels=320, edge=64),
                   dict(batch=2, channels=8, edge=6, groups=4)),
    "batch_norm": (batch_norm, dict(batch=32, channels=256, edge=56),
                   dict(batch=3, channels=4, edge=5)),
    "upsampling": (upsampling, dict(batch=8, channels=64, edge=64),
                   dict(batch=1, channels=3, edge=5)),
}  # fmt: skip
TINY = "_tiny"  # behind a name: the small sizes


def knows(name):
    return name.removesuffix(TINY) in MODELS


def make(name, device):
    """(model, args) on the device, with the same weights and data each time."""
    maker, full, tiny = MODELS[name.removesuffix(TINY)]
    torch.manual_seed(0)
    model, args = maker(**(tiny if name.endswith(TINY) else full))

    def there(tensor):
        return tensor.detach().to(device).requires_grad_(tensor.requires_grad)

    return model.to(device).train(), tuple(map(there, args))


def capture(name, device):
    """A model's one backward, as retrograd.translate takes it; on a GPU under bf16 autocast."""
    from retrograd.errors import ExportError
    from retrograd.export import captured_backwards

    torch.set_float32_matmul_precision("high")
    model, args = make(name, device)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        captured = captured_backwards(model, args, keep_on_device=True, joint_passes=True)
    if len(captured) != 1:
        raise ExportError(f"{name} has graph breaks: {len(captured)} backwards instead of one")
    return captured[0]
