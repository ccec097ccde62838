"""Where the elements of what a caller passes lie."""

import array
import ctypes


def _span(thing):
    """(address, bytes or None where it does not say)."""
    if isinstance(thing, int):
        return thing, None
    if hasattr(thing, "address"):  # Memory
        return thing.address, thing.nbytes
    if hasattr(thing, "data_ptr"):  # a tensor of PyTorch; its storage begins before it
        behind = thing.untyped_storage().nbytes() - thing.storage_offset() * thing.element_size()
        return thing.data_ptr(), behind
    if hasattr(thing, "__array_interface__"):  # NumPy
        return thing.__array_interface__["data"][0], _reach(thing)
    if hasattr(thing, "__cuda_array_interface__"):
        return thing.__cuda_array_interface__["data"][0], None
    if isinstance(thing, array.array):
        address, elements = thing.buffer_info()
        return address, elements * thing.itemsize
    raise TypeError(f"{type(thing).__name__} is no address, tensor, array or Memory")


def _reach(array):
    """Bytes from the first element to the end of the last; strides are not negative here."""
    if array.size == 0:
        return 0
    if any(stride < 0 for stride in array.strides):
        raise ValueError("an array of negative strides begins behind its first element")
    steps = zip(array.shape, array.strides, strict=True)
    return sum((n - 1) * stride for n, stride in steps) + array.itemsize


def addresses(things, tensors, what):
    """The array of addresses for a run, in the order of `tensors`.

    Each thing is an address, a Memory, a tensor of PyTorch, an array of NumPy or an array.array; None where nobody
    computes the output. ValueError where the number is wrong or the bytes are too few.
    """
    if len(things) != len(tensors):
        raise ValueError(f"{len(things)} {what}s given; the graph has {len(tensors)}")
    found = (ctypes.c_void_p * max(len(things), 1))()
    for i, (thing, tensor) in enumerate(zip(things, tensors, strict=True)):
        if thing is None:
            continue
        found[i], room = _span(thing)
        if room is not None and room < tensor.bytes:
            raise ValueError(
                f"{what} {i} ({tensor.name!r}) has {room} bytes; {tensor.bytes} are needed for "
                f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
            )
    return found
