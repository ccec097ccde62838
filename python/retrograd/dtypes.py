"""The element types of graph.proto and their PyTorch counterparts."""

import torch

from retrograd import sizes
from retrograd.errors import ExportError

_NUMBERS = {
    torch.bool: 1,
    torch.int8: 2,
    torch.uint8: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.float16: 6,
    torch.bfloat16: 7,
    torch.float32: 8,
    torch.float64: 9,
    torch.float8_e4m3fn: 10,
    torch.float8_e5m2: 11,
    torch.float8_e4m3fnuz: 12,
    torch.float8_e5m2fnuz: 13,
}
_NAMES = {
    torch.bool: "bool",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
}
_TORCH = {number: dtype for dtype, number in _NUMBERS.items()}


def number_of(dtype):
    """The schema's number of a torch.dtype; ExportError for one that it does not have."""
    if dtype not in _NUMBERS:
        raise ExportError(f"the graph holds a tensor of {dtype}, which the schema does not have")
    return _NUMBERS[dtype]


def name_of(dtype):
    """The name that attributes use: "f32", "bf16", "i64", ..."""
    number_of(dtype)
    return _NAMES[dtype]


def torch_dtype(number):
    """The torch.dtype of a schema number; ExportError for an unknown one."""
    if number not in _TORCH:
        raise ExportError(f"dtype number {number} of the graph is unknown to this version")
    return _TORCH[number]


def compute_dtype(dtype):
    """The type that PyTorch's pointwise kernels compute in: fp32 for narrower floats."""
    return torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype


def represents(dtype, number):
    """Whether `dtype` holds the Python number exactly; no float does one that follows from symbols."""
    if isinstance(number, bool) or not dtype.is_floating_point:
        return True
    if sizes.is_symbolic(number):
        return False
    if number != number:
        return True
    return torch.tensor(number, dtype=torch.float64).to(dtype).to(torch.float64).item() == number
