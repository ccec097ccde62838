"""PyTorch's own table of ops with sample inputs of each (OpInfo)."""

import itertools
import sys
import types
import unittest

import torch

try:
    import expecttest  # noqa: F401
except ImportError:  # PyTorch's test helpers derive a class from this one, and use nothing of it
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    sys.modules["expecttest"] = stand_in

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

# Ops whose calls cannot be recorded, or have nothing that a graph could hold.
_UNRECORDED = (
    "cauchy", "exponential", "geometric", "log_normal", "normal.in_place", "uniform",  # random
    "sparse.sampled_addmm", "sparse.mm.reduce", "to_sparse",
    "jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args",
    "jiterator_binary_return_by_ref", "jiterator_2inputs_2outputs",
    "as_strided.partial_views",  # reads storage that a copy of its argument lacks
    "tensor_split",  # by a tensor: reads its values
)  # fmt: skip


def full_name(info):
    """"max.reduction_with_dim": the op and the variant."""
    return ".".join(filter(None, (info.name, info.variant_test_name)))


OPS = {full_name(info): info for info in op_db if full_name(info) not in _UNRECORDED}


def samples(info, dtype, count):
    """At most `count` argument lists (args, kwargs) of the op; none of a dtype that it lacks."""
    if dtype not in info.supported_dtypes("cpu"):
        return
    gradient = info.supports_autograd and dtype.is_floating_point
    drawn = info.sample_inputs("cpu", dtype, requires_grad=gradient)
    for sample in itertools.islice(drawn, count):
        yield (sample.input, *sample.args), sample.kwargs
