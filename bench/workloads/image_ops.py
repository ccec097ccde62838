"""Ops on images and on their tokens, as op_models.py has its ops: pools, norms and attention over
channels, changes between channels and pixels, windows and patches."""

import torch
from torch import nn
from torch.nn import functional as F
from workloads.weighted import BF16, FP32, Weighted, given, parameter, row_of, weighted

LAST = torch.channels_last


def image(batch, channels, edge, memory_format=torch.contiguous_format):
    """An image that a gradient is wanted of."""
    drawn = torch.randn(batch, channels, edge, edge, dtype=BF16)
    return drawn.to(memory_format=memory_format).requires_grad_()


def of_images(op, batch, channels, edge, result=None, **parameters):
    """An op of an image with its channels last, whose gradient has them last, too, if it is one."""
    weight = torch.randn(result or (batch, channels, edge, edge), dtype=BF16)
    if weight.dim() == 4:
        weight = weight.to(memory_format=LAST)
    return Weighted(op, **parameters), (image(batch, channels, edge, LAST), weight)


def halved(edge):
    """Of a pool of 3 x 3 by 2 with a pixel around the image."""
    return -(-edge // 2)


# Pools and norms.


def average_pool_of_last_channels(batch, channels, edge):
    """The image's channels are last; those of its result's gradient are not."""
    weight = torch.randn(batch, channels, halved(edge), halved(edge), dtype=BF16)
    return Weighted(nn.AvgPool2d(3, 2, 1)), (image(batch, channels, edge, LAST), weight)


def max_pool(batch, channels, edge):
    result = (batch, channels, halved(edge), halved(edge))
    return of_images(nn.MaxPool2d(3, 2, 1), batch, channels, edge, result)


def global_pools(batch, channels, edge):
    """Averages and maxima of whole images beside each other."""
    op = lambda x: torch.cat((x.mean((2, 3)), x.amax((2, 3))), -1)  # noqa: E731
    return of_images(op, batch, channels, edge, (batch, 2 * channels))


def instance_norm(batch, channels, edge):
    norm = nn.InstanceNorm2d(channels, affine=True, dtype=BF16)
    return weighted(norm, (batch, channels, edge, edge))


def group_norm_of_last_channels(batch, channels, edge, groups):
    """The image's channels are last; those of its result's gradient are not."""
    norm = nn.GroupNorm(groups, channels, dtype=BF16)
    weight = torch.randn(batch, channels, edge, edge, dtype=BF16)
    return Weighted(norm), (image(batch, channels, edge, LAST), weight)


def layer_norm_of_channels(batch, channels, edge):
    """As ConvNeXt has it between convolutions: channels are first, and are normalised."""

    def op(x, scale, shift):
        x = F.layer_norm(x.permute(0, 2, 3, 1), (channels,), scale, shift)
        return x.permute(0, 3, 1, 2)

    tensors = dict(scale=parameter(channels), shift=parameter(channels))
    return Weighted(op, **tensors), (
        image(batch, channels, edge), torch.randn(batch, channels, edge, edge, dtype=BF16)
    )  # fmt: skip


def response_norm(batch, channels, edge):
    """ConvNeXt V2's: each channel over the mean of the channels' norms."""

    def op(x, scale, shift):
        norm = x.norm(p=2, dim=(1, 2), keepdim=True)
        return x + shift + scale * (x * (norm / (norm.mean(-1, keepdim=True) + 1e-6)))

    shape = (batch, edge, edge, channels)
    tensors = dict(scale=parameter(channels), shift=parameter(channels))
    return Weighted(op, **tensors), (given(*shape), torch.randn(shape, dtype=BF16))


def squeeze_excite(batch, channels, edge, squeezed):
    """Channels weighed by a perceptron of their means."""

    def op(x, down, up):
        gate = F.linear(F.silu(F.linear(x.mean((2, 3)), down)), up)
        return x * torch.sigmoid(gate)[:, :, None, None]

    tensors = dict(down=parameter(squeezed, channels), up=parameter(channels, squeezed))
    return of_images(op, batch, channels, edge, **tensors)


def spatial_gate(batch, channels, edge):
    """Pixels weighed by the mean and the maximum of their channels, as CBAM does."""

    def op(x):
        return x * torch.sigmoid(x.mean(1, keepdim=True) + x.amax(1, keepdim=True))

    return of_images(op, batch, channels, edge)


def channel_gate(batch, channels, edge):
    """Half of the channels let the other half through."""
    result = (batch, channels // 2, edge, edge)
    return of_images(lambda x: F.glu(x, 1), batch, channels, edge, result)


# Patches, windows and pixels.


def patchify(batch, channels, edge, patch):
    """Images as rows of patches, each a line of channels and pixels."""

    def op(x):
        x = x.reshape(batch, channels, edge // patch, patch, edge // patch, patch)
        return x.permute(0, 2, 4, 3, 5, 1).reshape(batch, (edge // patch) ** 2, -1)

    result = (batch, (edge // patch) ** 2, patch**2 * channels)
    return weighted(op, (batch, channels, edge, edge), result=result)


def unpatchify(batch, channels, edge, patch):
    def op(x):
        x = x.reshape(batch, edge // patch, edge // patch, patch, patch, channels)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(batch, channels, edge, edge)

    shape = (batch, (edge // patch) ** 2, patch**2 * channels)
    return weighted(op, shape, result=(batch, channels, edge, edge))


def merge_patches(batch, edge, width):
    """Four neighbours of tokens as one of four times the width, as Swin's stages begin."""

    def op(x):
        parts = (x[:, i::2, j::2] for j in (0, 1) for i in (0, 1))
        return torch.cat(tuple(parts), -1)

    result = (batch, edge // 2, edge // 2, 4 * width)
    return weighted(op, (batch, edge, edge, width), result=result)


def window_partition(batch, edge, width, window, shift):
    """Rolled, then cut into windows."""

    def op(x):
        x = torch.roll(x, (-shift, -shift), (1, 2))
        x = x.reshape(batch, edge // window, window, edge // window, window, width)
        return x.transpose(2, 3).reshape(-1, window**2, width)

    result = (batch * (edge // window) ** 2, window**2, width)
    return weighted(op, (batch, edge, edge, width), result=result)


def haar(batch, channels, edge):
    """A wavelet's four bands beside each other."""

    def op(x):
        a, b, c, d = (x[..., i::2, j::2] for i in (0, 1) for j in (0, 1))
        return torch.cat((a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d), 1) / 2

    result = (batch, 4 * channels, edge // 2, edge // 2)
    return weighted(op, (batch, channels, edge, edge), result=result)


def tokens_of_channels(batch, channels, edge):
    """Pixels as tokens, each with its channels, scaled by channel."""

    def op(x, scale):
        return x.flatten(2).transpose(1, 2) * scale

    tensors = given(batch, channels, edge, edge), torch.randn(batch, edge**2, channels, dtype=BF16)
    return Weighted(op, scale=parameter(channels)), tensors


def shuffle_channels(batch, channels, edge, groups):
    def op(x):
        parts = x.reshape(batch, groups, channels // groups, edge, edge)
        return parts.transpose(1, 2).reshape(batch, channels, edge, edge)

    return weighted(op, (batch, channels, edge, edge))


def pixel_shuffle_by_3(batch, channels, edge):
    result = (batch, channels // 9, 3 * edge, 3 * edge)
    return weighted(nn.PixelShuffle(3), (batch, channels, edge, edge), result=result)


def unfold(batch, channels, edge, window):
    """All windows of an image, each a column."""
    op = lambda x: F.unfold(x, window, padding=window // 2)  # noqa: E731
    return weighted(
        op, (batch, channels, edge, edge), result=(batch, channels * window**2, edge**2)
    )


def replication_pad(batch, channels, edge, width):
    result = (batch, channels, edge + 2 * width, edge + 2 * width)
    return weighted(nn.ReplicationPad2d(width), (batch, channels, edge, edge), result=result)


def bicubic_upsampling(batch, channels, edge):
    op = lambda x: F.interpolate(x, scale_factor=2, mode="bicubic")  # noqa: E731
    return weighted(
        op, (batch, channels, edge, edge), result=(batch, channels, 2 * edge, 2 * edge)
    )


def grid_sample(batch, channels, edge):
    """Bilinear samples at places that are given; the gradient is of the image and of the places."""
    op = Weighted(lambda x, places: F.grid_sample(x, places, align_corners=False))
    places = (torch.rand(batch, edge, edge, 2) * 2 - 1).requires_grad_()
    return op, (
        given(batch, channels, edge, edge, dtype=FP32), places,
        torch.randn(batch, channels, edge, edge),
    )  # fmt: skip


def depthwise_line(batch, channels, length, taps):
    """A causal depthwise convolution over time with its SiLU, as Mamba has it."""

    def op(x, shift, taps_of):
        padded = F.conv1d(x, taps_of, shift, padding=taps - 1, groups=channels)
        return F.silu(padded[..., :length])

    shape = (batch, channels, length)
    tensors = dict(shift=parameter(channels), taps_of=parameter(channels, 1, taps))
    return Weighted(op, **tensors), (given(*shape), torch.randn(shape, dtype=BF16))


_SMALL = dict(batch=2, channels=4, edge=6)

# name: (maker, its sizes, sizes that a CPU runs through in no time)
MODELS = {
    **row_of(average_pool_of_last_channels, dict(batch=64, channels=64, edge=112), _SMALL),
    **row_of(max_pool, dict(batch=64, channels=64, edge=112), _SMALL),
    **row_of(global_pools, dict(batch=64, channels=512, edge=28), _SMALL),
    **row_of(instance_norm, dict(batch=32, channels=64, edge=112), _SMALL),
    **row_of(group_norm_of_last_channels, dict(batch=8, channels=320, edge=64, groups=32),
           dict(_SMALL, groups=2)),
    **row_of(layer_norm_of_channels, dict(batch=64, channels=96, edge=56), _SMALL),
    **row_of(response_norm, dict(batch=64, channels=384, edge=28), _SMALL),
    **row_of(squeeze_excite, dict(batch=64, channels=256, edge=28, squeezed=64),
           dict(_SMALL, squeezed=2)),
    **row_of(spatial_gate, dict(batch=64, channels=256, edge=28), _SMALL),
    **row_of(channel_gate, dict(batch=64, channels=256, edge=28), _SMALL),
    **row_of(patchify, dict(batch=64, channels=3, edge=224, patch=4), dict(_SMALL, patch=2)),
    **row_of(unpatchify, dict(batch=64, channels=3, edge=224, patch=16), dict(_SMALL, patch=2)),
    **row_of(merge_patches, dict(batch=64, edge=56, width=96), dict(batch=2, edge=6, width=4)),
    **row_of(window_partition, dict(batch=64, edge=56, width=96, window=7, shift=3),
           dict(batch=2, edge=6, width=4, window=3, shift=1)),
    **row_of(haar, dict(batch=32, channels=64, edge=112), _SMALL),
    **row_of(tokens_of_channels, dict(batch=64, channels=384, edge=28), _SMALL),
    **row_of(shuffle_channels, dict(batch=64, channels=240, edge=28, groups=3),
           dict(_SMALL, groups=2)),
    **row_of(pixel_shuffle_by_3, dict(batch=32, channels=144, edge=64), dict(_SMALL, channels=18)),
    **row_of(unfold, dict(batch=16, channels=64, edge=56, window=3), dict(_SMALL, window=3)),
    **row_of(replication_pad, dict(batch=16, channels=64, edge=128, width=3), dict(_SMALL, width=2)),
    **row_of(bicubic_upsampling, dict(batch=8, channels=32, edge=64), _SMALL),
    **row_of(grid_sample, dict(batch=8, channels=32, edge=64), _SMALL),
    **row_of(depthwise_line, dict(batch=8, channels=1536, length=2048, taps=4),
           dict(batch=2, channels=4, length=9, taps=3)),
}  # fmt: skip
