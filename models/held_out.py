"""Models that nothing here was made for, as zoo.MODELS has them: other kinds of networks of the
`timm`, `torchvision` and `transformers` packages, at sizes that a user trains, and those that
held_out_networks.py writes out. They show what holds beyond the models that plans and prices were
looked at with. None of them takes part in choosing a rule or fitting a number.
"""

import torch
from torch import nn
from torch.nn import functional as F

import held_out_networks


def speech_encoder(batch, frames, width=512, layers=6):
    """Convolutions over mel frames, a transformer encoder and a class for each fourth frame."""

    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolutions = nn.Sequential(
                nn.Conv1d(80, width, 3, 2, 1),
                nn.GELU(),
                nn.Conv1d(width, width, 3, 2, 1),
                nn.GELU(),
            )
            block = nn.TransformerEncoderLayer(
                width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
            self.output = nn.Linear(width, 1000)

        def forward(self, frames, classes):
            states = self.encoder(self.convolutions(frames).transpose(1, 2))
            return F.cross_entropy(self.output(states).flatten(0, 1).float(), classes.flatten())

    def make(device):
        classes = torch.randint(0, 1000, (batch, frames // 4), device=device)
        sound = torch.randn(batch, 80, frames, device=device)
        return Speech().to(device).train(), (sound, classes), {}

    return make


def video_network(batch, frames, side):
    """A network of 3-D convolutions on clips, and their classes."""

    class Video(nn.Module):
        def __init__(self):
            super().__init__()
            import torchvision

            self.network = torchvision.models.video.r3d_18(num_classes=400)

        def forward(self, clips, classes):
            return F.cross_entropy(self.network(clips).float(), classes)

    def make(device):
        clips = torch.randn(batch, 3, frames, side, side, device=device)
        classes = torch.randint(0, 400, (batch,), device=device)
        return Video().to(device).train(), (clips, classes), {}

    return make


def unfused_attention(name):
    """What makes a network of timm whose attention is written out: PyTorch's own kernels refuse
    biases of channels-last maps."""

    def make():
        import timm

        before = timm.layers.config._USE_FUSED_ATTN
        timm.layers.set_fused_attn(False)
        try:
            return timm.create_model(name, pretrained=False)
        finally:
            timm.layers.config._USE_FUSED_ATTN = before

    return make


def image_models(image_model):
    """By zoo.image_model, which makes one of a timm network and a batch."""
    channels_last = {
        "regnety_b32": ("regnety_016", 32),
        "densenet_b32": ("densenet121", 32),
        "efficientnetv2_b32": ("efficientnetv2_rw_t", 32),
        "resnext_b32": ("resnext50_32x4d", 32),
        "mobilevit_b32": ("mobilevit_s", 32),
        "convnextv2_b32": ("convnextv2_tiny", 32),
        "poolformer_b32": ("poolformer_s12", 32),
        "ghostnet_b4": ("ghostnet_100", 4),
        "res2net_b4": ("res2net50_26w_4s", 4),
        "hrnet_b8": ("hrnet_w18", 8),
        "nfnet_b16": ("nfnet_l0", 16),
        "coatnet_b16": (unfused_attention("coatnet_0_rw_224"), 16),
    }
    row_major = {
        "swin_b32": ("swin_tiny_patch4_window7_224", 32),
        "xcit_b16": ("xcit_small_12_p16_224", 16),
        "deit_b16": ("deit3_small_patch16_224", 16),
        # Whose images Inductor leaves in the order in which they come.
        "resnext_row_major_b32": ("resnext50_32x4d", 32),
        "densenet_row_major_b32": ("densenet121", 32),
        "regnety_row_major_b32": ("regnety_016", 32),
    }
    return {
        **{name: image_model(*of) for name, of in channels_last.items()},
        **{name: image_model(*of, channels_last=False) for name, of in row_major.items()},
    }


def language_models(language_model):
    """By zoo.language_model, which makes one of transformers' classes and sizes."""
    narrow = dict(num_hidden_layers=6, hidden_size=768, num_attention_heads=12)
    return {
        "t5_b8": language_model(
            "T5ForConditionalGeneration", "T5Config", {"decoder_start_token_id": 0}, 512, batch=8
        ),
        "bart_b8": language_model(
            "BartForConditionalGeneration",
            "BartConfig",
            dict(encoder_layers=6, decoder_layers=6, d_model=768, encoder_attention_heads=12,
                 decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072),
            300,
            batch=8,
        ),
        "opt_b8": language_model(
            "OPTForCausalLM", "OPTConfig", {**narrow, "ffn_dim": 3072}, 1000, batch=8
        ),
        "gemma3_b4": language_model(
            "Gemma3ForCausalLM",
            "Gemma3TextConfig",
            dict(num_hidden_layers=6, hidden_size=640, num_attention_heads=4, num_key_value_heads=1,
                 head_dim=256, intermediate_size=2048, vocab_size=65536, sliding_window=512),
            1024,
            batch=4,
        ),
        "qwen2_b2": language_model(
            "Qwen2ForCausalLM",
            "Qwen2Config",
            dict(num_hidden_layers=6, hidden_size=896, num_attention_heads=14,
                 num_key_value_heads=2, intermediate_size=4864, vocab_size=151936),
            1536,
            batch=2,
        ),
        "deberta_b8": language_model(
            "DebertaV2ForMaskedLM",
            "DebertaV2Config",
            {**narrow, "intermediate_size": 3072, "relative_attention": True, "vocab_size": 32000,
             "pos_att_type": ["p2c", "c2p"]},
            384,
            batch=8,
        ),
        "distilbert_b16": language_model(
            "DistilBertForMaskedLM", "DistilBertConfig", {}, 250, batch=16
        ),
        "fnet_b8": language_model(
            "FNetForMaskedLM", "FNetConfig",
            dict(num_hidden_layers=6, hidden_size=768, intermediate_size=3072), 512, batch=8
        ),
        # With weights of fp32 transformers' experts wait for the device, in every backend.
        "olmoe_b4": language_model(
            "OlmoeForCausalLM",
            "OlmoeConfig",
            dict(num_hidden_layers=4, hidden_size=1024, num_attention_heads=16,
                 intermediate_size=512, num_experts=32, num_experts_per_tok=4, vocab_size=32000,
                 pad_token_id=0, eos_token_id=1),
            1024,
            batch=4,
            dtype=torch.bfloat16,
        ),
    }  # fmt: skip


def models(image_model, language_model):
    """{name: make(device)} of all of them."""
    return {
        **image_models(image_model),
        **language_models(language_model),
        "speech_b16": speech_encoder(16, 1000),
        "video_b4": video_network(4, 16, 112),
        **held_out_networks.models(),
    }
