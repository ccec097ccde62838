"""Architectures at tiny sizes that train through the backend: name -> make() -> (model, args, kwargs,
loss of the result)."""

import torch
from torch import nn
from torch.nn import functional as F


def _classes(batch, count=10):
    labels = torch.randint(count, (batch,))
    return lambda out: F.cross_entropy(out, labels)


def _timm(name, size=32, batch=2, **options):
    def make():
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=10, **options).train()
        x = torch.randn(batch, 3, size, size)
        return model, (x,), {}, _classes(batch)

    return make


def _transformers(cls, config, **sizes):
    def make():
        import transformers

        made = getattr(transformers, config)(**sizes)
        model = getattr(transformers, cls)(made).train()
        ids = torch.randint(sizes.get("vocab_size", 64), (2, 16))
        return model, (), {"input_ids": ids, "labels": ids}, lambda out: out.loss

    return make


# Batch norms over a handful of numbers would magnify rounding without bounds.
_NORMS = dict(size=64, batch=4)
_SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
              num_attention_heads=4)  # fmt: skip
_SMALL_T5 = dict(vocab_size=64, dropout_rate=0.0, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                 decoder_start_token_id=0)  # fmt: skip


def _vision_transformer(cls, config, **sizes):
    def make():
        import transformers

        model = getattr(transformers, cls)(getattr(transformers, config)(**sizes)).train()
        return model, (torch.randn(2, 3, 32, 32),), {}, lambda out: out[0].square().mean()

    return make


def _torchvision(name, size=64, batch=2, key=None, **options):
    def make():
        import torchvision

        model = torchvision.models.get_model(name, weights=None, weights_backbone=None, **options) \
            if key else torchvision.models.get_model(name, weights=None, **options)  # fmt: skip
        x = torch.randn(batch, 3, size, size)
        if key:
            return model.train(), (x,), {}, lambda out: out[key].square().mean()
        return model.train(), (x,), {}, _classes(batch)

    return make


def detection_head():
    """RetinaNet's heads over three levels of features, with focal loss and box regression."""
    from torchvision.models.detection.retinanet import RetinaNetHead
    from torchvision.ops import sigmoid_focal_loss

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.ModuleList(
                nn.Conv2d(a, b, 3, 2, 1) for a, b in [(3, 16), (16, 16), (16, 16)]
            )
            self.head = RetinaNetHead(16, 3, 4)

        def forward(self, x):
            features = []
            for layer in self.backbone:
                x = F.relu(layer(x))
                features.append(x)
            return self.head(features)

    targets = None

    def loss(out):
        nonlocal targets
        if targets is None:
            targets = (torch.rand_like(out["cls_logits"]) < 0.1).float()
        classes = sigmoid_focal_loss(out["cls_logits"], targets, reduction="sum")
        return classes + F.smooth_l1_loss(out["bbox_regression"], torch.ones(()).expand_as(
            out["bbox_regression"]))  # fmt: skip

    return Model().train(), (torch.randn(1, 3, 32, 32),), {}, loss


def _graph_network(layer, **options):
    def make():
        import torch_geometric.nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                of = getattr(torch_geometric.nn, layer)
                self.first = of(8, 16, **options)
                self.second = of(16 * options.get("heads", 1), 5, **options)

            def forward(self, x, edges):
                return self.second(F.elu(self.first(x, edges)), edges)

        labels = torch.randint(5, (30,))
        edges = torch.randint(30, (2, 100))
        return Net(), (torch.randn(30, 8), edges), {}, lambda out: F.cross_entropy(out, labels)

    return make


def recurrent():
    """An LSTM and a GRU by cells over six steps."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.gru = nn.LSTMCell(8, 16), nn.GRUCell(16, 16)
            self.out = nn.Linear(16, 4)

        def forward(self, x):
            h = c = g = torch.zeros(x.shape[1], 16)
            for step in x:
                h, c = self.lstm(step, (h, c))
                g = self.gru(h, g)
            return self.out(g)

    return Net(), (torch.randn(6, 3, 8),), {}, _classes(3, 4)


def diffusion_unet():
    """A denoising U-Net: time embedding, residual blocks, attention, down and up sampling."""

    class Block(nn.Module):
        def __init__(self, inner, outer):
            super().__init__()
            self.norm, self.conv = nn.GroupNorm(4, inner), nn.Conv2d(inner, outer, 3, padding=1)
            self.time = nn.Linear(16, outer)
            self.second = nn.Conv2d(outer, outer, 3, padding=1)
            self.skip = nn.Conv2d(inner, outer, 1)

        def forward(self, x, t):
            h = self.conv(F.silu(self.norm(x))) + self.time(t)[:, :, None, None]
            return self.skip(x) + self.second(F.silu(h))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Conv2d(3, 8, 3, padding=1)
            self.down, self.middle, self.up = Block(8, 16), Block(16, 16), Block(24, 8)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.leave = nn.Conv2d(8, 3, 3, padding=1)

        def forward(self, x, t):
            angles = t[:, None] * torch.exp(-torch.arange(8) / 8.0)
            t = torch.cat((angles.sin(), angles.cos()), 1)
            first = self.enter(x)
            h = F.avg_pool2d(self.down(first, t), 2)
            rows = h.flatten(2).transpose(1, 2)
            h = h + self.attention(rows, rows, rows)[0].transpose(1, 2).view_as(h)
            h = F.interpolate(self.middle(h, t), scale_factor=2, mode="nearest")
            return self.leave(self.up(torch.cat((h, first), 1), t))

    return Net(), (torch.randn(2, 3, 8, 8), torch.rand(2)), {}, lambda out: out.square().mean()


def spherical_harmonics():
    from e3nn import o3

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(16, 8)

        def forward(self, x):
            return self.lin(o3.spherical_harmonics([0, 1, 2, 3], x, normalize=True,
                                                   normalization="component"))  # fmt: skip

    x = torch.randn(20, 3, requires_grad=True)
    return Net(), (x,), {}, lambda out: out.square().mean()


def autoencoder():
    model = nn.Sequential(
        nn.Conv1d(2, 8, 4, 2, 1), nn.BatchNorm1d(8), nn.LeakyReLU(0.2),
        nn.ConvTranspose1d(8, 4, 4, 2, 1), nn.Softplus(), nn.Conv1d(4, 2, 3, padding=1), nn.Tanh(),
    )  # fmt: skip
    return model, (torch.randn(3, 2, 16),), {}, lambda out: (out - 0.3).abs().mean()


def mixture_of_experts():
    """Switch routing by one-hot masks, so that each expert sees every token."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.out = nn.Linear(8, 4), nn.Linear(8, 5)
            self.up, self.down = nn.Parameter(torch.randn(4, 8, 16)), nn.Parameter(
                torch.randn(4, 16, 8))  # fmt: skip

        def forward(self, x):
            gates = self.router(x).softmax(-1)
            best, which = gates.topk(2, -1)
            mask = F.one_hot(which, 4).to(x.dtype) * best[..., None]
            hidden = F.relu(torch.einsum("td,edh->teh", x, self.up))
            y = torch.einsum("teh,ehd->ted", hidden, self.down)
            return self.out((y * mask.sum(1)[..., None]).sum(1))

    return Net(), (torch.randn(12, 8),), {}, _classes(12, 5)


MODELS = {
    # transformers
    "bert": _transformers("BertForMaskedLM", "BertConfig", **_SMALL),
    "gpt2": _transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=64, n_embd=32, n_layer=2,
                          n_head=4, n_positions=32),
    "llama": _transformers("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, **_SMALL),
    "qwen3": _transformers("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2, head_dim=8,
                           **_SMALL),
    "gemma2": _transformers("Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2, head_dim=8,
                            pad_token_id=0, **_SMALL),
    "t5": _transformers("T5ForConditionalGeneration", "T5Config", **_SMALL_T5),
    "roberta": _transformers("RobertaForMaskedLM", "RobertaConfig", max_position_embeddings=40,
                             **_SMALL),
    "mamba": _transformers("MambaForCausalLM", "MambaConfig", vocab_size=64, hidden_size=16,
                           state_size=4, num_hidden_layers=2),
    "dinov2": _vision_transformer("Dinov2Model", "Dinov2Config", hidden_size=32,
                                  num_hidden_layers=2, num_attention_heads=4, image_size=32,
                                  patch_size=8),
    # images
    "resnet18": _timm("resnet18", **_NORMS),
    "resnet50": _timm("resnet50", **_NORMS),
    "mobilenetv3": _timm("mobilenetv3_small_050", drop_rate=0.0, **_NORMS),
    "efficientnet": _timm("efficientnet_b0", drop_rate=0.0, drop_path_rate=0.0, **_NORMS),
    "convnext": _timm("convnext_atto"),
    "vit": _timm("vit_tiny_patch16_224", img_size=32, depth=2),
    "mixer": _timm("mixer_s32_224", size=224, batch=1),
    "swin": _timm("swin_tiny_patch4_window7_224", img_size=56, size=56, window_size=7,
                  depths=(1, 1), embed_dim=24, num_heads=(2, 2), drop_path_rate=0.0),
    "regnet": _timm("regnety_002", **_NORMS),
    "densenet": _timm("densenet121", growth_rate=8, block_config=(2, 2)),
    "maxvit_like_coatnet": _timm("coatnet_nano_rw_224", size=64, img_size=64),
    "segmentation": _torchvision("lraspp_mobilenet_v3_large", key="out", num_classes=4),
    "shufflenet": _torchvision("shufflenet_v2_x0_5", batch=4, num_classes=10),
    "squeezenet": _torchvision("squeezenet1_1", num_classes=10),
    "detection_head": detection_head,
    "diffusion_unet": diffusion_unet,
    # others
    "gcn": _graph_network("GCNConv"),
    "sage": _graph_network("SAGEConv"),
    "gat": _graph_network("GATConv", heads=2),
    "recurrent": recurrent,
    "spherical_harmonics": spherical_harmonics,
    "autoencoder": autoencoder,
    "mixture_of_experts": mixture_of_experts,
}
