"""Gradients whose own formula in PyTorch grows with an extent when it is traced.

PyTorch's gradient of a cumulative product looks whether a factor is zero. Traced, it can't: it takes
a cumulative product for each place along the axis, a graph of thousands of ops. What stands here in
its place takes four scans, zeros or not.
"""

import contextlib

import torch

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_CUMPROD_BACKWARD = torch.ops.aten.cumprod_backward.default


def _sums_behind(x, dim):
    """At each place the sum of it and of all behind it."""
    return x.flip(dim).cumsum(dim).flip(dim)


def _cumprod_backward(grad, x, dim, products):
    """The sum over k from i on of grad[k] times the factors up to k without x[i]. Those are
    products[k] / x[i] where x[i] is not 0; where it is, they are 0 but for the first zero of a line,
    for which they are the products with a 1 in its place."""
    again = torch.is_grad_enabled() and any(t.requires_grad for t in (grad, x, products))
    if again or x.is_complex():
        return _CUMPROD_BACKWARD._op_dk(_COMPOSITE, grad, x, dim, products)
    if x.dim() == 0:
        return grad
    zero = x == 0
    first = zero & (zero.cumsum(dim) == 1)
    without = torch.where(first, 1, x).cumprod(dim)
    others = _sums_behind(grad * products, dim) / x
    return torch.where(first, _sums_behind(grad * without, dim), torch.where(zero, 0, others))


@contextlib.contextmanager
def in_few_ops():
    """Graphs that are traced within have these gradients."""
    kept = dict(_CUMPROD_BACKWARD.py_kernels)
    _CUMPROD_BACKWARD.py_kernels[_COMPOSITE] = _cumprod_backward
    _CUMPROD_BACKWARD._dispatch_cache.clear()
    try:
        yield
    finally:
        _CUMPROD_BACKWARD.py_kernels.clear()
        _CUMPROD_BACKWARD.py_kernels.update(kept)
        _CUMPROD_BACKWARD._dispatch_cache.clear()
