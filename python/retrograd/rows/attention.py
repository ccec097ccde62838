"""Rows of the table for attention: every variant of PyTorch's becomes `attention_backward`.

Operands: dO, Q, K, V, O [B, H, T, D] (K and V may have fewer heads), the natural logarithm of the
sum of exponentials of the scaled scores [B, H, T] in fp32, then an additive bias if there is one.
Where dropout_p > 0 the random generator's seed and offset follow. Results: dQ, dK, dV, and where a
bias has a gradient that of the scores, whose sums over what the bias repeats are its gradient.
`variant` names PyTorch's implementation: a dropout mask is only what that implementation draws
again from its seed.
`causal` aligns the mask with the top left corner.
"""

import torch

from retrograd.aten_table import row


def _attention(
    call, variant, grads, lse, *, dropout_p, causal, scale, bias=None, rng=(), bias_gradient=False
):
    b = call.b
    _, q, k, v, _ = grads
    grads = [b.cast(x, q.dtype) for x in grads]
    if any(x.rank != 4 for x in grads):
        raise call.error("attention needs [batch, heads, length, width] operands")
    if causal and q.shape[2] != k.shape[2]:
        raise call.error(f"causal attention of {q.shape[2]} queries over {k.shape[2]} keys")
    # Implementations pad the log-sum-exp to their tile, and some append an axis of 1.
    lse = b.reshape(lse, lse.shape[:3])
    lse = b.cast(b.slice(lse, 2, 0, q.shape[2]), torch.float32)
    operands = [*grads, lse]
    if bias is not None and bias.dtype == torch.bool:  # True: takes part
        bias = b.pointwise("where", bias, b.full(0, q.dtype), b.full(float("-inf"), q.dtype))
    if bias is not None:
        operands.append(bias)
    if dropout_p > 0:
        if not rng:
            raise call.error(f"dropout_p={dropout_p} without a recorded random seed")
        operands += rng
    types = [(x.dtype, x.shape) for x in grads[1:4]]
    given = {}
    if bias_gradient:
        types.append((q.dtype, (*q.shape[:3], k.shape[2])))
        given["score_gradient"] = 1
    results = b.node(
        "attention_backward", operands, types,
        scale=float(q.shape[3] ** -0.5 if scale is None else scale),
        causal=int(causal), dropout_p=float(dropout_p), variant=variant, **given,
    )  # fmt: skip
    if not bias_gradient:
        return results
    if bias.rank != 4:
        raise call.error(f"the gradient of a bias needs 4 axes, not those of {list(bias.shape)}")
    repeated = [axis for axis in range(4) if bias.shape[axis] == 1]
    return [*results[:3], b.cast(b.reduce("sum", results[3], repeated, keep=True), bias.dtype)]


@row("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_cpu(call, do, q, k, v, o, lse, dropout_p, causal, attn_mask=None, scale=None):
    return _attention(
        call, "flash_cpu", (do, q, k, v, o), lse,
        dropout_p=dropout_p, causal=causal, scale=scale, bias=attn_mask,
    )  # fmt: skip


@row("aten._scaled_dot_product_flash_attention_backward.default")
def flash(call, do, q, k, v, o, lse, _, __, ___, ____, dropout_p, causal, state, _5, scale=None):
    """The generator's state holds the seed and the offset."""
    b = call.b
    rng = [b.reshape(b.slice(state, 0, i, i + 1), ()) for i in range(2)] if dropout_p > 0 else ()
    return _attention(
        call, "flash", (do, q, k, v, o), lse,
        dropout_p=dropout_p, causal=causal, scale=scale, rng=rng,
    )  # fmt: skip


@row("aten._scaled_dot_product_efficient_attention_backward.default")
def efficient(
    call, do, q, k, v, bias, o, lse, seed, offset, dropout_p, mask, causal=False, scale=None
):
    return _attention(
        call, "efficient", (do, q, k, v, o), lse,
        dropout_p=dropout_p, causal=causal, scale=scale, bias=bias, rng=(seed, offset),
        bias_gradient=bias is not None and call.uses(3),
    )  # fmt: skip


@row("aten._scaled_dot_product_cudnn_attention_backward.default")
def cudnn(
    call, do, q, k, v, o, lse, seed, offset, bias, _, __, ___, ____, dropout_p, causal, scale=None
):
    return _attention(
        call, "cudnn", (do, q, k, v, o), lse,
        dropout_p=dropout_p, causal=causal, scale=scale, bias=bias, rng=(seed, offset),
    )  # fmt: skip
