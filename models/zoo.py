"""The models behind models/graphs: make(name, device) -> (model, args, kwargs).

`golf` is a small RMSNorm transformer with grouped-query attention, parallel residuals, a learned
mix with the embedding stream before each block, and blocks that may run twice (depth recurrence).
The others are the usual ones of the `transformers` package, at sizes whose bundles stay small.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F

import by_name
import held_out
import recommenders
from diffusion_networks import DiffusionTransformer
from image_networks import UNet


@dataclasses.dataclass(frozen=True)
class GolfConfig:
    vocabulary: int = 1024
    width: int = 512
    layers: int = 11
    heads: int = 8
    kv_heads: int = 4
    expansion: int = 4  # MLP width / width
    length: int = 2048
    recurrent: tuple = (4, 5)  # the blocks (first, .., last) that run a second time
    plain: bool = False  # norms without weights, leaky ReLU instead of ReLU


class PlainNorm(nn.Module):
    """RMS norm without a weight."""

    def forward(self, x):
        return F.rms_norm(x, (x.size(-1),))


def make_norm(config):
    return PlainNorm() if config.plain else nn.RMSNorm(config.width)


def rotate(x, cos, sin):
    """Rotary position embedding over the two halves of the last axis. cos, sin: [1, 1, T, D/2]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos + b * sin, b * cos - a * sin), -1).to(x.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention with normalised queries and keys and a gain per head."""

    def __init__(self, config):
        super().__init__()
        d, self.head_width = config.width, config.width // config.heads
        self.q = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, config.kv_heads * self.head_width, bias=False)
        self.v = nn.Linear(d, config.kv_heads * self.head_width, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.gain = nn.Parameter(torch.ones(config.heads))

    def split(self, x):
        """[B, T, H*D] -> [B, H, T, D]."""
        return x.view(*x.shape[:2], -1, self.head_width).transpose(1, 2)

    def forward(self, x, cos, sin):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        q = rotate(F.rms_norm(q, (self.head_width,)), cos, sin)
        k = rotate(F.rms_norm(k, (self.head_width,)), cos, sin)
        q = q * self.gain.to(q.dtype)[None, :, None, None]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        d = config.width
        self.plain = config.plain
        self.norm1, self.norm2 = make_norm(config), make_norm(config)
        self.attention = Attention(config)
        self.up = nn.Linear(d, config.expansion * d, bias=False)
        self.down = nn.Linear(config.expansion * d, d, bias=False)
        self.attention_scale = nn.Parameter(torch.ones(d))
        self.mlp_scale = nn.Parameter(torch.ones(d))
        self.mix = nn.Parameter(torch.stack((torch.ones(d), torch.zeros(d))))

    def forward(self, x, x0, cos, sin):
        x = self.mix[0] * x + self.mix[1] * x0
        attended = self.attention(self.norm1(x), cos, sin)
        u = self.up(self.norm2(x))
        u = F.leaky_relu(u, 0.5) if self.plain else F.relu(u)
        return x + self.attention_scale * attended + self.mlp_scale * self.down(u.square())


class Golf(nn.Module):
    """(ids [B, T], targets [B, T]) -> the mean cross entropy. Embedding and head are tied."""

    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.embedding.weight.data.mul_(0.02)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = make_norm(config)
        self.order = list(range(config.layers))
        if config.recurrent:
            last = config.recurrent[-1] + 1
            self.order = self.order[:last] + list(config.recurrent) + self.order[last:]
        width = config.width // config.heads
        rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(config.length).float(), rates)
        self.register_buffer("cos", angles.cos()[None, None])
        self.register_buffer("sin", angles.sin()[None, None])

    def forward(self, ids, targets):
        x = F.rms_norm(self.embedding(ids), (self.embedding.embedding_dim,))
        x0 = x
        for index in self.order:
            x = self.blocks[index](x, x0, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight.to(x.dtype)).float()
        logits = 30 * torch.tanh(logits / 30)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def golf(batch, **sizes):
    config = GolfConfig(**sizes)

    def make(device):
        shape = (batch, config.length)
        ids = torch.randint(0, config.vocabulary, shape, device=device)
        targets = torch.randint(0, config.vocabulary, shape, device=device)
        return Golf(config).to(device).train(), (ids, targets), {}

    return make


def language_model(model_class, config_class, sizes, length, batch=1, dtype=torch.float32):
    """A model of the transformers package on random tokens that are their own labels; dtype: of its
    parameters."""

    def make(device):
        import transformers

        config = getattr(transformers, config_class)(**sizes)
        model = getattr(transformers, model_class)(config).to(device, dtype).train()
        if model_class == "GPT2LMHeadModel":
            model.loss_type = "ForCausalLM"  # unset, it logs a warning, which breaks the graph
        ids = torch.randint(0, config.vocab_size, (batch, length), device=device)
        return model, (), {"input_ids": ids, "labels": ids.clone()}

    return make


class Classifier(nn.Module):
    """(images, classes of them or of their pixels) -> the mean cross entropy of a network's
    logits."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images, classes):
        return F.cross_entropy(self.network(images).float(), classes)


def image_model(network, batch, channels_last=True, dtype=torch.float32, side=224):
    """A network of the timm package, or what makes one, on random square images."""

    def make(device):
        if isinstance(network, str):
            import timm

            # A transformer's table of positions is one of image sizes, too.
            sizes = {"img_size": side} if network.startswith("vit") else {}
            made = timm.create_model(network, pretrained=False, **sizes)
        else:
            made = network()
        layout = torch.channels_last if channels_last else torch.contiguous_format
        made = made.to(device, dtype=dtype, memory_format=layout).train()
        images = torch.randn(batch, 3, side, side, device=device)
        images = images.to(dtype=dtype, memory_format=layout)
        with torch.no_grad():
            logits = made.eval()(images[:1]).shape
        made.train()
        classes = torch.randint(0, logits[1], (batch, *logits[2:]), device=device)
        return Classifier(made), (images, classes), {}

    return make


def diffusion_transformer(batch):
    def make(device):
        model = DiffusionTransformer().to(device).train()
        latents = torch.randn(batch, 4, 32, 32, device=device)
        times = 1000 * torch.rand(batch, device=device)
        classes = torch.randint(0, 1000, (batch,), device=device)
        return model, (latents, times, classes, torch.randn(batch, 256, 16, device=device)), {}

    return make


def image_models(name, network, batch, **sizes):
    """{name: a model}: in bf16, channels last, and in fp32, row-major; without autocast."""
    return {
        f"{name}_bf16": image_model(network, batch, True, torch.bfloat16, **sizes),
        f"{name}_fp32": image_model(network, batch, False, torch.float32, **sizes),
    }


_BERT = dict(
    vocab_size=384, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=256, max_position_embeddings=32, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)  # fmt: skip
_GPT2 = dict(
    vocab_size=384, n_embd=64, n_layer=2, n_head=4, n_positions=32, resid_pdrop=0.0,
    embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
_LLAMA = dict(
    vocab_size=384, hidden_size=64, intermediate_size=192, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
)  # fmt: skip
_LLAMA_SMALL = dict(
    vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12,
    num_attention_heads=16, num_key_value_heads=8,
)  # fmt: skip

TINY = {
    "golf_tiny": golf(
        1, vocabulary=256, width=64, layers=2, heads=4, kv_heads=2, length=64, recurrent=(0, 1)
    ),
    "bert_tiny": language_model("BertForMaskedLM", "BertConfig", _BERT, 32),
    "gpt2_tiny": language_model("GPT2LMHeadModel", "GPT2Config", _GPT2, 32),
    "llama_tiny": language_model("LlamaForCausalLM", "LlamaConfig", _LLAMA, 32),
}
FULL_SIZE = {
    "golf_plain_b48": golf(48, plain=True),
    "golf_gpt_34m_b32": golf(32),
}
# Whose graphs are not kept in the repository: bench/run.py captures them where it runs. BERT drops
# out, attention included, as its configuration says by itself.
BENCHED = {
    "llama_small": language_model("LlamaForCausalLM", "LlamaConfig", _LLAMA_SMALL, 2048, batch=4),
    "bert_base": language_model("BertForMaskedLM", "BertConfig", {}, 512, batch=8),
    "gpt2": language_model("GPT2LMHeadModel", "GPT2Config", {}, 1024, batch=4),
    "mixer_b16": image_model("mixer_s16_224", 16, channels_last=False),
    "efficientnet_b0_b2": image_model("efficientnet_b0", 2),
    "resnet50_b2": image_model("resnet50", 2),
    "resnet18_b1": image_model("resnet18", 1),
    "convnext_tiny_b2": image_model("convnext_tiny", 2),
    "vit_small_b8": image_model("vit_small_patch16_224", 8, channels_last=False),
    "mobilenetv3_b2": image_model("mobilenetv3_large_100", 2),
}
# Measured where their names are asked for. They run in their own dtype, without autocast.
IMAGES = {
    **image_models("resnet50_b32", "resnet50", 32),
    **image_models("mobilenetv3_b32", "mobilenetv3_large_100", 32),
    **image_models("convnext_tiny_b32", "convnext_tiny", 32),
    **image_models("vit_small_b32", "vit_small_patch16_224", 32),
    **image_models("unet_b8", UNet, 8, side=256),
    **image_models("unet_tiny", lambda: UNet(width=4, levels=2, classes=3), 2, side=16),
}
# Image models of BENCHED at a batch that fills a GPU. Measured where their names are asked for.
BATCHES = {
    "efficientnet_b0_b64": image_model("efficientnet_b0", 64),
    "resnet50_b64": image_model("resnet50", 64),
    "resnet18_b64": image_model("resnet18", 64),
    "convnext_tiny_b64": image_model("convnext_tiny", 64),
    "vit_small_b64": image_model("vit_small_patch16_224", 64, channels_last=False),
    "mobilenetv3_b64": image_model("mobilenetv3_large_100", 64),
}
# Attention with a learned bias. Measured where its name is asked for.
BIASED = {"beit_base_b16": image_model("beit_base_patch16_224", 16, channels_last=False)}
# A residual stream whose tokens lie side by side. Measured where its name is asked for.
TRANSPOSED = {"dit_b32": diffusion_transformer(32)}
HELD_OUT = held_out.models(image_model, language_model)
# A sum by a sorted list for each of many tables. Measured where their names are asked for.
RECOMMENDERS = recommenders.models()
KEPT = {**TINY, **FULL_SIZE}
MODELS = {**KEPT, **BENCHED, **IMAGES, **BATCHES, **BIASED, **TRANSPOSED, **HELD_OUT, **RECOMMENDERS}
# In their own dtype: IMAGES by what they measure, and Fourier transforms because CUDA has none of
# bf16.
WITHOUT_AUTOCAST = {*IMAGES, "fnet_b8"}


def autocasts(name, device):
    """Whether the model runs under bf16 autocast there."""
    return device == "cuda" and name not in WITHOUT_AUTOCAST


def maker(name):
    """make(device) of one of MODELS or of by_name's. Raises ValueError where there is none."""
    if by_name.is_name(name):
        return by_name.maker(image_model, language_model, name)
    if name not in MODELS:
        raise ValueError(f"no model {name!r}; there are {', '.join(MODELS)}, and {by_name.EXAMPLES}")
    return MODELS[name]


def make(name, device):
    """(model, args, kwargs) with the same random weights and data each time. Vectors get noise:
    gains of exactly one and biases of zero would hide a gradient that misses their factor."""
    make_model = maker(name)
    torch.manual_seed(0)
    model, args, kwargs = make_model(device)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model, args, kwargs
