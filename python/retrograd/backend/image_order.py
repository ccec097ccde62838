"""Where the channels of a forward's images lie.

Inductor stores images of two dims with their channels last, but not in a network that has a grouped
convolution, one of larger filters that are half as many as its channels, few channels throughout, or
few convolutions among many other ops (GraphLowering.decide_layout_opt). The last rule holds here,
too. Libraries multiply 16-bit images with their channels last on Hopper, whatever the convolution,
and transpose others in each call, of the forward and of the backward that reads what it saves.
"""

import contextlib

import torch
import torch._inductor

# Of Hopper's GPUs, on one of which it was measured (docs/decisions/111-images-of-forwards.md).
_CAPABILITY = (9, 0)
_OPS_OF_CONVOLUTION = 300  # Inductor's: a graph with so many for each convolution stays as it is
_FORCED = "force_layout_optimization"  # Inductor's option
_DTYPES = (torch.bfloat16, torch.float16)


def patched(graph, settings):
    """A context for Inductor to compile a forward's graph in: images have their channels last where
    that pays and the settings want it. What the options of Inductor say of it holds."""
    given = _FORCED in dict(settings.inductor)
    if settings.channels_last_forward and not given and channels_last_pays(graph):
        return torch._inductor.config.patch({_FORCED: True})
    return contextlib.nullcontext()


def channels_last_pays(graph):
    """Whether the graph has convolutions of images of two dims, not few among other ops, all of 16
    bits, of known sizes and on an NVIDIA GPU since Hopper."""
    convolutions = [
        node for node in graph.nodes if node.target is torch.ops.aten.convolution.default
    ]
    if len(graph.nodes) >= _OPS_OF_CONVOLUTION * len(convolutions):
        return False
    images = [node.args[0].meta["val"] for node in convolutions]
    images = [image for image in images if image.dim() == 4]
    return bool(images) and all(map(_lies_best_so, images))


def _lies_best_so(image):
    if image.dtype not in _DTYPES or not image.is_cuda or torch.version.hip is not None:
        return False
    known = all(isinstance(extent, int) for extent in image.shape)
    return known and torch.cuda.get_device_capability(image.device) >= _CAPABILITY
