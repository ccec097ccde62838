"""Layers as functions on a Builder: a forward that adds a layer's nodes, and its backward, which adds
those of the gradients. They add the same nodes as retrograd/layers.hpp does.

A forward's graph stores what its backward's graph reads, as outputs that become inputs there.
Shapes: rows is any number of examples or tokens.
"""

import collections
import math

LinearGradients = collections.namedtuple("LinearGradients", "dx dw dbias")
LayerNormResult = collections.namedtuple("LayerNormResult", "y mean rstd")
NormGradients = collections.namedtuple("NormGradients", "dx dw dbias")
RmsNormResult = collections.namedtuple("RmsNormResult", "y rstd")
CrossEntropyResult = collections.namedtuple("CrossEntropyResult", "loss log_probabilities")
AttentionResult = collections.namedtuple("AttentionResult", "y probabilities")
AttentionGradients = collections.namedtuple("AttentionGradients", "dq dk dv")
AdamResult = collections.namedtuple("AdamResult", "p m v")


def _transposed(b, v):
    """The last two axes change places."""
    rank = len(v.shape)
    return b.add("permute", v, perm=[*range(rank - 2), rank - 1, rank - 2])


def _reduce_last(b, op, v):
    """Over the last axis, which keeps extent 1."""
    return b.add(op, v, axes=[len(v.shape) - 1], keep=1)


def _mean_last(b, v):
    return b.add("mul", _reduce_last(b, "sum", v), b.scalar(1 / v.shape[-1], v.dtype))


def _sum_rows(b, v):
    return b.add("sum", v, axes=[0])


def _times(b, v, factor):
    return b.add("mul", v, b.scalar(factor, v.dtype))


def linear(b, x, w, bias):
    """y[rows, out] = x[rows, in] w[out, in]ᵀ + bias[out]"""
    return b.add("add", b.add("matmul", x, _transposed(b, w)), bias)


def linear_backward(b, dy, x, w):
    """dx = dy w, dw = dyᵀ x, dbias = sum of dy's rows"""
    dx = b.add("matmul", dy, w)
    dw = b.add("matmul", _transposed(b, dy), x)
    return LinearGradients(dx, dw, _sum_rows(b, dy))


def relu(b, x):
    """y = max(x, 0); its backward reads y."""
    return b.add("relu", x)


def relu_backward(b, dy, y):
    return b.add("relu_backward", dy, y)


def gelu(b, x):
    """y = x Φ(x), Φ the normal distribution; its backward reads x."""
    one = b.scalar(1, x.dtype)
    cdf = b.add("add", one, b.add("erf", _times(b, x, math.sqrt(0.5))))
    return b.add("mul", _times(b, x, 0.5), cdf)


def gelu_backward(b, dy, x):
    return b.add("gelu_backward", dy, x)


def silu(b, x):
    """y = x σ(x); its backward reads x."""
    return b.add("mul", x, b.add("sigmoid", x))


def silu_backward(b, dy, x):
    return b.add("silu_backward", dy, x)


def layer_norm(b, x, w, bias, eps=1e-5):
    """y = (x - mean) rstd w + bias over the last axis of x[rows, features]; rstd = 1 / √(var + eps).
    mean and rstd, [rows, 1], are for the backward."""
    mean = _mean_last(b, x)
    centred = b.add("sub", x, mean)
    variance = _mean_last(b, b.add("mul", centred, centred))
    rstd = b.add("rsqrt", b.add("add", variance, b.scalar(eps, x.dtype)))
    return LayerNormResult(b.add("fma", b.add("mul", centred, rstd), w, bias), mean, rstd)


def layer_norm_backward(b, dy, x, mean, rstd, w):
    dx = b.add("layer_norm_backward", dy, x, mean, rstd, w)
    return NormGradients(dx, b.nth(dx, 1), b.nth(dx, 2))


def rms_norm(b, x, w, eps=1e-6):
    """y = x rstd w over the last axis of x[rows, features]; rstd = 1 / √(mean of x² + eps). rstd,
    [rows, 1], is for the backward."""
    mean = _mean_last(b, b.add("mul", x, x))
    rstd = b.add("rsqrt", b.add("add", mean, b.scalar(eps, x.dtype)))
    return RmsNormResult(b.add("mul", b.add("mul", x, rstd), w), rstd)


def rms_norm_backward(b, dy, x, rstd, w):
    """Without dbias."""
    dx = b.add("rms_norm_backward", dy, x, rstd, w)
    return NormGradients(dx, b.nth(dx, 1), None)


def softmax(b, x):
    """Over the last axis; its backward reads y."""
    e = b.add("exp", b.add("sub", x, _reduce_last(b, "amax", x)))
    return b.add("div", e, _reduce_last(b, "sum", e))


def softmax_backward(b, dy, y):
    return b.add("softmax_backward", dy, y)


def _one_hot(b, labels, like):
    """1 where the column is the row's label, else 0."""
    columns = b.add("iota", axis=1, start=0, step=1, dtype="i64", shape=like.shape)
    rows = b.add("reshape", labels, shape=[like.shape[0], 1])
    return b.add("cast", b.add("eq", columns, rows), dtype=like.dtype)


def softmax_cross_entropy(b, logits, labels):
    """The mean over rows of -log softmax(logits[rows, classes])[label], labels: int64 [rows]; and the
    log probabilities, for the backward."""
    if len(logits.shape) != 2:
        raise ValueError(f"logits must be [rows, classes], not {logits.shape}")
    shifted = b.add("sub", logits, _reduce_last(b, "amax", logits))
    log_sum = b.add("log", _reduce_last(b, "sum", b.add("exp", shifted)))
    log_probabilities = b.add("sub", shifted, log_sum)
    picked = b.add("mul", log_probabilities, _one_hot(b, labels, logits))
    loss = _times(b, b.add("sum", picked, axes=[0, 1]), -1 / logits.shape[0])
    return CrossEntropyResult(loss, log_probabilities)


def softmax_cross_entropy_backward(b, log_probabilities, labels):
    """dlogits = (softmax - one hot) / rows, for a loss whose own gradient is 1."""
    if len(log_probabilities.shape) != 2:
        raise ValueError(f"log_probabilities must be [rows, classes], not {log_probabilities.shape}")
    probabilities = b.add("exp", log_probabilities)
    difference = b.add("sub", probabilities, _one_hot(b, labels, log_probabilities))
    return _times(b, difference, 1 / log_probabilities.shape[0])


def attention(b, q, k, v, scale):
    """y = softmax(scale q kᵀ) v; q: [..., queries, size], k and v: [..., keys, size]; and the
    probabilities [..., queries, keys], for the backward."""
    scores = b.add("matmul", q, _transposed(b, k))
    p = softmax(b, _times(b, scores, scale))
    return AttentionResult(b.add("matmul", p, v), p)


def attention_backward(b, dy, q, k, v, probabilities, scale):
    dp = b.add("matmul", dy, _transposed(b, v))
    ds = _times(b, softmax_backward(b, dp, probabilities), scale)
    dq = b.add("matmul", ds, k)
    dk = b.add("matmul", _transposed(b, ds), q)
    return AttentionGradients(dq, dk, b.add("matmul", _transposed(b, probabilities), dy))


def sgd(b, p, g, rate):
    """p - rate g"""
    return b.add("sub", p, _times(b, g, rate))


def adam(b, p, g, m, v, step, rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    """Kingma and Ba, algorithm 1 (arXiv:1412.6980). step: rank 0, of p's dtype, counts from 1."""

    def blend(old, added, beta):
        kept = _times(b, old, beta)
        return b.add("add", kept, _times(b, added, 1 - beta))

    def unbiased(moment, beta):
        power = b.add("pow", b.scalar(beta, p.dtype), step)
        return b.add("div", moment, b.add("sub", b.scalar(1, p.dtype), power))

    m2 = blend(m, g, beta1)
    v2 = blend(v, b.add("mul", g, g), beta2)
    root = b.add("sqrt", unbiased(v2, beta2))
    divisor = b.add("add", root, b.scalar(eps, p.dtype))
    change = b.add("div", unbiased(m2, beta1), divisor)
    return AdamResult(b.add("sub", p, _times(b, change, rate)), m2, v2)
