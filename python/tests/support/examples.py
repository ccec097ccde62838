"""Small models, what PyTorch's eager autograd says about their gradients, and their exports."""

import dataclasses
import pathlib

import retrograd
import torch
import zoo
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Example:
    path: pathlib.Path  # of the graph
    bundle: pathlib.Path
    gradients: dict  # parameter name -> gradient by eager PyTorch


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(24, 40), nn.Linear(40, 10)
        self.norm = nn.LayerNorm(40)

    def forward(self, x, labels):
        hidden = F.dropout(F.gelu(self.norm(self.first(x))), 0.0)
        return F.cross_entropy(self.second(hidden), labels)


class Retention(nn.Module):
    """A retention layer: attention without softmax, with a decay per head, normalised per head and
    gated, over inputs padded and shifted in time."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads = heads
        self.qkvg = nn.Linear(width, 4 * width)
        self.out = nn.Linear(width, width, bias=False)
        self.decay = nn.Parameter(torch.linspace(1.0, 3.0, heads))

    def forward(self, x):
        batch, length, width = x.shape
        shifted = F.pad(x, (0, 0, 1, -1))
        q, k, v, gate = self.qkvg(x + 0.5 * shifted).chunk(4, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        age = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        rate = torch.log(torch.sigmoid(self.decay))[:, None, None]
        weight = torch.where(age >= 0, torch.exp(rate * age.clamp(min=0)), 0.0)
        y = (q @ k.transpose(-1, -2) * weight / width**0.5) @ v
        y = (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-3)
        y = F.silu(gate) * y.transpose(1, 2).reshape(x.shape)
        return self.out(y)[:, 1:].square().mean()


class ManyOps(nn.Module):
    """One of each of the ops that the other models leave out."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.norm = nn.LayerNorm([4, 16])
        self.bare_norm = nn.LayerNorm(16, elementwise_affine=False)
        self.gain = nn.Parameter(0.3 * torch.randn(4, 16))
        self.embedding = nn.Embedding(10, 16, padding_idx=0)

    def activations(self, x, ids):
        y = F.gelu(self.linear(x))
        z = F.silu(self.norm(y))
        w = torch.softmax(z, 1) + torch.log_softmax(z, -1) + torch.sigmoid(z) * torch.tanh(y)
        w = self.bare_norm(w) + self.embedding(ids)
        v = F.relu(w) + F.leaky_relu(w, 0.1) + F.softplus(z) + F.elu(w) + F.mish(w)
        v = v + F.hardswish(w) + F.logsigmoid(w) + F.gelu(w, approximate="tanh")
        return torch.tanh(0.2 * v) + 0.3, w

    def views(self, v, ids):
        v = v.clamp(-2, 3) * (v.abs() + 0.2).sqrt().clamp_min(0.1) + v.pow(3)
        v = v + torch.cat([v[..., 8:], v[..., :8]], -1) + v.flip(-1)
        terms = F.pad(v, (1, -2, 0, 1)).sum() + v[:, torch.tensor([3, 1, 2])].mean()
        terms = terms + v[:, [0, -1], :].var() + v.select(1, 2).mul(v[:, 1]).sum()
        index = ids[..., None].expand(-1, -1, 3)
        terms = terms + torch.gather(v, 2, index).sum() + v.std(-1).mean() + v.amax(-1).sum()
        return v, terms + torch.stack([v, 2 * v], 1).unbind(1)[0].norm()

    def losses(self, v, w, ids):
        total = F.mse_loss(v, w) + F.smooth_l1_loss(v, w) + F.huber_loss(v, w)
        total = total + F.binary_cross_entropy_with_logits(v, torch.sigmoid(w.detach()))
        total = total + F.kl_div(torch.log_softmax(v, -1), torch.softmax(w, -1), reduction="sum")
        total = total + F.cross_entropy(v.transpose(1, 2), ids, label_smoothing=0.1, ignore_index=0)
        total = total + F.normalize(v, dim=-1).sum() + F.cosine_similarity(v, w, dim=-1).sum()
        return total + torch.logsumexp(v, -1).sum()

    def forward(self, x, ids):
        v, w = self.activations(x, ids)
        v, terms = self.views(v, ids)
        scores = torch.einsum("btc,bsc->bts", v, w).tril().sum() + (v @ v.mT).softmax(-1).norm()
        masked = v.masked_fill(v > 0, 0.3).sum() + torch.where(v > 0, v, 1.7 * w).mean()
        return terms + scores + masked + self.losses(v, w, ids) + (v * self.gain).exp().mean()


def _mlp():
    return Mlp(), (torch.randn(12, 24), torch.randint(0, 10, (12,))), {}


def _retention():
    return Retention(), (torch.randn(2, 9, 24),), {}


def _many_ops():
    return ManyOps(), (torch.randn(3, 4, 16), torch.randint(0, 10, (3, 4))), {}


def t5():
    """An encoder and decoder whose code breaks the graph in several places."""
    import transformers

    config = transformers.T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    ids = torch.randint(1, 96, (2, 11))
    return transformers.T5ForConditionalGeneration(config), (), {"input_ids": ids, "labels": ids}


EXAMPLES = {"mlp": _mlp, "retention": _retention, "many_ops": _many_ops}
NAMES = [*zoo.TINY, *EXAMPLES]


def make(name):
    """(model, args, kwargs), the same each time."""
    if name in zoo.TINY:
        return zoo.make(name, "cpu")
    torch.manual_seed(0)
    return EXAMPLES[name]()


def eager_gradients(model, args, kwargs):
    """{parameter name: gradient} by plain PyTorch; those without a gradient left out."""
    model.zero_grad()
    result = model(*args, **kwargs)
    getattr(result, "loss", result).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def export(name, folder, **options):
    model, args, kwargs = make(name)
    (path,) = retrograd.export_backward(model, args, kwargs, folder / name, bundle=True, **options)
    gradients = eager_gradients(model, args, kwargs)
    return Example(path, folder / f"{name}.safetensors", gradients)
