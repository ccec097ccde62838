"""Whether integers that an fx graph makes of constants are the same however their floats are rounded. A
compiler may leave the rounding out between a product and a sum, and rounds quotients, roots and
logarithms in several ways; an integer below a floor then is another one."""

import torch
from torch.utils import _pytree as pytree

# Ops whose results every compiler rounds alike, or not at all; a product that is added to something,
# perhaps not.
_PRODUCTS = {"mul"}
_ALIKE = _PRODUCTS | set(
    "add sub rsub neg abs sign minimum maximum clamp clamp_min clamp_max where floor ceil trunc round "
    "arange iota full full_like zeros zeros_like ones ones_like scalar_tensor lift_fresh_copy clone "
    "convert_element_type _to_copy view reshape _unsafe_view unsqueeze squeeze expand permute transpose t "
    "select slice cat repeat flip index broadcast_in_dim alias detach copy".split()
)
# Units in the last place, by which results of other ops may be off.
_UNITS = 4
# A larger tensor is not evaluated.
_MOST_ELEMENTS = 1 << 22


def are_certain(nodes):
    """Whether the last of these nodes, in their order and with all that they read, has one value
    whatever a compiler makes of the others."""
    if not any(_is_float(node) for node in nodes):
        return True
    if any(_elements(node) > _MOST_ELEMENTS for node in nodes):
        return False
    ways = [(0, True), (0, False), (1, True), (-1, True)]
    try:
        values = [_evaluated(nodes, *way) for way in ways]
    except (RuntimeError, TypeError, NotImplementedError):
        return False  # an op that is not for this device or for float64
    return all(torch.equal(values[0], other) for other in values[1:])


def _evaluated(nodes, sign, products_rounded):
    """The last node's value. sign: in which direction what is not rounded alike is off."""
    values = {}
    for node in nodes:
        args, kwargs = pytree.tree_map_only(
            torch.fx.Node, values.__getitem__, (node.args, dict(node.kwargs))
        )
        args, kwargs = pytree.tree_map(_on_cpu_in_float64, (args, kwargs))
        value = node.target(*args, **kwargs)
        name = node.target.overloadpacket.__name__
        if _is_float(node) and (products_rounded or name not in _PRODUCTS):
            dtype = node.meta["val"].dtype
            off = 0 if name in _ALIKE else sign * _UNITS * torch.finfo(dtype).eps
            value = value.to(dtype).double() * (1 + off)
        values[node] = value
    return values[nodes[-1]]


def _on_cpu_in_float64(value):
    """What an op is given: the device, dtypes, and numbers as they are for float32."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float32).item()
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _is_float(node):
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _elements(node):
    value = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) else 0
