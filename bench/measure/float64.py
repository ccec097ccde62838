"""The float64 reference: a captured backward, op by op, with every floating value in float64.

It reads the very tensors that both sides read, rounded as the forward saved them, and rounds
nothing after that but what is quantised to eight bits: what a backward's own arithmetic adds is all
that a comparison with it shows.
"""

import math

import torch
from torch.utils._pytree import tree_map

# Where each attention op of PyTorch has its operands: dO, Q, K, V, O, log-sum-exp, bias, dropout,
# causal, scale.
_ATTENTION = {
    "cudnn": (0, 1, 2, 3, 4, 5, 8, 13, 14, 15),
    "flash": (0, 1, 2, 3, 4, 5, None, 10, 11, 14),
    "flash_for_cpu": (0, 1, 2, 3, 4, 5, 8, 6, 7, 9),
    "efficient": (0, 1, 2, 3, 5, 6, 4, 9, 11, 12),
}
_NAMES = {
    "aten._scaled_dot_product_cudnn_attention_backward.default": "cudnn",
    "aten._scaled_dot_product_flash_attention_backward.default": "flash",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": "flash_for_cpu",
    "aten._scaled_dot_product_efficient_attention_backward.default": "efficient",
}


class NoReference(Exception):
    """The backward holds something that only its own implementation can repeat."""


def gradients(captured):
    """The gradients of a captured backward with recorded inputs, in float64; None where absent."""
    arguments = [_as_recorded(i) for i in captured.inputs]
    module = captured.fx_graph.owning_module
    results = _Float64(module).run(*arguments)
    return [r if isinstance(r, torch.Tensor) else None for r in results]


def errors(gradients, references):
    """The error of each gradient, ||g - ref|| / max(||ref||, 1e-5 x the norm of all)."""
    norms = [None if r is None else r.double().norm().item() for r in references]
    floor = 1e-5 * math.sqrt(sum(n * n for n in norms if n is not None))
    return [
        (g.double() - r.double()).norm().item() / max(n, floor, 1e-300)
        for g, r, n in zip(gradients, references, norms)
        if r is not None
    ]


def _as_recorded(item):
    """An input's tensor, of its raw span."""
    span, strides = item.recorded, item.strides or _dense_strides(item.shape)
    return torch.as_strided(span, item.shape, strides, span.storage_offset())


def _dense_strides(shape):
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(extent, 1))
    return strides[: len(shape)]


def _widen(value):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, torch.dtype) and value.is_floating_point and value.itemsize > 1:
        return torch.float64
    return value


def _narrow(value):
    wide = isinstance(value, torch.Tensor) and value.dtype == torch.float64
    return value.bfloat16() if wide else value


class _Float64(torch.fx.Interpreter):
    def call_function(self, target, args, kwargs):
        args, kwargs = tree_map(_widen, args), tree_map(_widen, kwargs)
        name = str(target)
        if name in _NAMES:
            return _attention(_NAMES[name], args, kwargs)
        if name == "aten.mm.dtype":
            return torch.mm(args[0], args[1])
        if name == "aten._grouped_mm.default":
            return _grouped_mm(*args[:3])
        if name == "aten._scaled_grouped_mm.default":
            return _scaled_grouped_mm(*args[:5], **{k: kwargs[k] for k in ("offs",) if k in kwargs})
        if name == "aten.avg_pool2d_backward.default":
            # With channels last and padding PyTorch's CUDA kernel is wrong before the fix of
            # pytorch/pytorch#188344.
            args = (args[0].contiguous(), args[1].contiguous(), *args[2:])
        if name.startswith("torchao."):  # quantisers, which take no float64
            args = tree_map(_narrow, args)
        if name in ("aten.view.default", "aten._unsafe_view.default"):
            return args[0].reshape(args[1])  # strides may differ from those that the graph knows
        return tree_map(_widen, super().call_function(target, args, kwargs))


def _grouped_mm(a, b, ends):
    """Rows in groups, or, of two matrices, the terms of the sums; zeros behind the last group."""
    begins = [0, *ends.tolist()]
    groups = list(zip(begins, begins[1:]))
    if b.dim() == 2:
        return torch.stack([a[:, i:j] @ b[i:j] for i, j in groups])
    result = a.new_zeros(a.shape[0], b.shape[2])
    for group, (i, j) in enumerate(groups):
        result[i:j] = a[i:j] @ b[group]
    return result


def _scaled_grouped_mm(a, b, of_rows, of_columns, offs):
    groups = len(offs)
    of_columns = of_columns.reshape(groups, 1, -1)
    if b.dim() == 2:
        return _grouped_mm(a, b, offs) * of_rows.reshape(groups, -1, 1) * of_columns
    return _grouped_mm(a * of_rows[:, None], b * of_columns, offs)


def _attention(variant, args, kwargs):
    places = _ATTENTION[variant]
    do, q, k, v, o, lse, bias, dropout, causal, scale = (
        args[p] if p is not None and p < len(args) else None for p in places
    )
    scale, bias = kwargs.get("scale", scale), kwargs.get("attn_mask", bias)
    if dropout:
        raise NoReference(f"attention drops out with p = {dropout}: its mask is {variant}'s own")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    lse = lse.reshape(*lse.shape[:3])[:, :, : q.shape[2]]
    parts = [
        _attention_of_one(
            *(t[b] for t in (do, q, k, v, o, lse)),
            None if bias is None else bias.expand(q.shape[0], *bias.shape[1:])[b],
            causal,
            scale,
        )
        for b in range(q.shape[0])
    ]
    dq, dk, dv, ds = (torch.stack(g) for g in zip(*parts))
    if bias is None or bias.dtype == torch.bool:
        return dq, dk, dv, None
    return dq, dk, dv, ds.sum_to_size(bias.shape)


def _attention_of_one(do, q, k, v, o, lse, bias, causal, scale):
    """dQ, dK, dV and the gradient of the scores of one item of the batch; [heads, length, width],
    fewer heads in k and v."""
    groups = q.shape[0] // k.shape[0]
    kk, vv = k.repeat_interleave(groups, 0), v.repeat_interleave(groups, 0)
    scores = scale * (q @ kk.mT)
    if bias is not None:
        scores = scores.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else scores + bias
    p = torch.exp(scores - lse[..., None])
    if causal:
        p = p.tril()
    ds = p * (do @ vv.mT - (do * o).sum(-1, keepdim=True))
    dk, dv = scale * (ds.mT @ q), p.mT @ do

    def per_group(x):
        return x.view(-1, groups, *x.shape[1:]).sum(1)

    return scale * (ds @ kk), per_group(dk), per_group(dv), ds
