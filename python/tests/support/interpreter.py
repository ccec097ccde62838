"""Evaluates an exported graph op by op with PyTorch: the check of the exporter's translation.

It reads nothing but the graph's file and a bundle, so what it computes is what the file says.
"""

import torch
from retrograd import bundle, dtypes, schema


def attributes(node):
    """{name: value} of a node, lists as Python lists."""
    values = {}
    for attr in node.attrs:
        kind = attr.WhichOneof("value")
        value = getattr(attr, kind)
        values[attr.name] = list(value.values) if kind == "ints" else value
    return values


def dims_of(type_):
    return tuple(type_.dims)


def row_major_strides(shape):
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides


def evaluate(graph, inputs, double=False):
    """Returns the outputs (None where absent). inputs: {node id: 1-D storage span}. With `double`
    every floating value is computed in float64, whatever its type says."""
    values = {}
    for node in graph.nodes:
        operands = [values[o.node, o.result] for o in node.operands]
        types = [(dtypes.torch_dtype(r.dtype), dims_of(r)) for r in node.results]
        if double:
            types = [(torch.float64 if d.is_floating_point else d, s) for d, s in types]
        if node.op == "input":
            results = [_input(node, inputs[node.id], *types[0])]
        else:
            results = OPS[node.op](operands, attributes(node), types)
            results = results if isinstance(results, (list, tuple)) else [results]
        for i, (result, (dtype, shape)) in enumerate(zip(results, types, strict=True)):
            assert tuple(result.shape) == shape, f"node {node.id} {node.op}: {result.shape} {shape}"
            assert result.dtype == dtype, f"node {node.id} {node.op}: {result.dtype} {dtype}"
            values[node.id, i] = result
    return [None if o.absent else values[o.value.node, o.value.result] for o in graph.outputs]


def evaluate_file(path, bundle_path, double=False):
    """Returns (graph, outputs, recorded gradients by output index)."""
    graph = schema.load(path)
    inputs, gradients = bundle.read(bundle_path)
    return graph, evaluate(graph, inputs, double), gradients


def _input(node, span, dtype, shape):
    strides = list(node.input.strides) or row_major_strides(shape)
    return span.as_strided(shape, strides).to(dtype)


def _pointwise(function):
    def run(x, attrs, types):
        dtype, _ = types[0]
        wide = dtypes.compute_dtype(dtype)
        x = [v.to(wide) if v.dtype.is_floating_point else v for v in x]
        return function(*x).to(dtype)

    return run


def _compare(function):
    return lambda x, attrs, types: function(*x)


def _reduction(function):
    def run(x, attrs, types):
        wide = x[0].to(dtypes.compute_dtype(types[0][0]))
        return function(wide, dim=attrs["axes"], keepdim=bool(attrs["keep"])).to(types[0][0])

    return run


def _iota(x, attrs, types):
    dtype, shape = types[0]
    line = attrs["start"] + attrs["step"] * torch.arange(shape[attrs["axis"]])
    line = line.reshape([-1 if i == attrs["axis"] else 1 for i in range(len(shape))])
    return line.to(dtype).expand(shape)


def _window(x, attrs):
    index = [slice(None)] * x.ndim
    index[attrs["axis"]] = slice(attrs["start"], attrs["stop"], attrs["step"])
    return tuple(index)


def _slice_scatter(x, attrs, types):
    result = x[0].clone()
    result[_window(result, attrs)] = x[1]
    return result


def _pad(x, attrs, types):
    amounts = [n for pair in zip(reversed(attrs["low"]), reversed(attrs["high"])) for n in pair]
    return torch.nn.functional.pad(x[0], amounts, value=attrs["value"])


def _within(index, extent):
    """The index with negative entries counted from the end, and whether it is inside the axis;
    where it is not, it is 0."""
    index = index.long()
    index = torch.where(index < 0, index + extent, index)
    inside = (index >= 0) & (index < extent)
    return torch.where(inside, index, 0), inside


def _index_select(x, attrs, types):
    source, index = x
    axis, extent = attrs["axis"], x[0].shape[attrs["axis"]]
    if not extent:
        return torch.zeros(types[0][1], dtype=source.dtype)
    index, inside = _within(index.reshape(-1), extent)
    taken = source.index_select(axis, index)
    inside = inside.reshape([-1 if a == axis else 1 for a in range(source.ndim)])
    return torch.where(inside, taken, 0).to(source.dtype).reshape(types[0][1])


def _gather(x, attrs, types):
    index, inside = _within(x[1], x[0].shape[attrs["axis"]])
    return torch.where(inside, x[0].gather(attrs["axis"], index), 0).to(x[0].dtype)


def _index_add(x, attrs, types):
    base, index, src = x
    axis = attrs["axis"]
    if not base.numel():
        return base
    src = src.reshape(*base.shape[:axis], index.numel(), *base.shape[axis + 1 :])
    index, inside = _within(index.reshape(-1), base.shape[axis])
    inside = inside.reshape([-1 if a == axis else 1 for a in range(src.ndim)])
    wide = torch.float64 if base.dtype.is_floating_point else torch.int64
    src = torch.where(inside, src.to(wide), 0)
    return base.to(wide).index_add(axis, index, src).to(base.dtype)


def _matmul(x, attrs, types):
    wide = torch.float32 if types[0][0] != torch.float64 else torch.float64
    return (x[0].to(wide) @ x[1].to(wide)).to(types[0][0])


def _of_places(scales, axis, block, extent):
    """Scales along an axis of so many places, one of each or one of a block of them."""
    if scales.shape[axis] == extent:
        return scales
    return scales.repeat_interleave(block, axis).narrow(axis, 0, extent)


def _scaled_by_blocks(a, b, of_rows, of_columns, block):
    """Both matrices times the scales of their blocks."""
    of_columns = of_columns if b.dim() == 3 else of_columns[0]
    for axis in (0, 1):
        of_rows = _of_places(of_rows, axis, block, a.shape[axis])
    for axis in (-2, -1):
        of_columns = _of_places(of_columns, axis, block, b.shape[axis])
    return a * of_rows, b * of_columns


def _grouped_matmul(x, attrs, types):
    wide = dtypes.compute_dtype(types[0][0])
    a, b, ends = x[0].to(wide), x[1].to(wide), x[2]
    of_rows, of_columns = x[3:] if len(x) > 3 else (None, None)
    if "scale_block" in attrs:
        a, b = _scaled_by_blocks(a, b, of_rows, of_columns, attrs["scale_block"])
        of_rows = None
    result = torch.zeros(types[0][1], dtype=wide)
    begin, size = 0, a.shape[0 if b.dim() == 3 else 1]
    for group, end in enumerate(ends.tolist()):
        end = min(max(end, begin), size)
        rows = slice(begin, end) if b.dim() == 3 else group
        if b.dim() == 3:
            result[rows] = a[rows] @ b[group]
        else:
            result[rows] = a[:, begin:end] @ b[begin:end]
        if of_rows is not None:
            result[rows] = result[rows] * of_rows[rows, ..., None] * of_columns[group]
        begin = end
    return result.to(types[0][0])


def _scatter_lines(x, attrs, types):
    index, src = x
    extent, (dtype, shape) = attrs["extent"], types[0]
    index = torch.where(index < 0, index + extent, index).long().expand(src.shape)
    outside = (index < 0) | (index >= extent)
    wide = torch.zeros((*shape[:-1], extent + 1), dtype=torch.float64)
    wide.scatter_add_(-1, torch.where(outside, extent, index), src.double())
    return wide[..., :extent].to(dtype)


def _segment_amax(x, attrs, types):
    x, ends, axis = *x, attrs["axis"]
    x = x.abs() if attrs.get("magnitude") else x
    result = torch.full(types[0][1], 0 if attrs.get("magnitude") else -torch.inf, dtype=x.dtype)
    begin, size = 0, x.shape[axis]
    for group, end in enumerate(ends.tolist()):
        end = min(max(end, begin), size)
        if end > begin:
            result.select(axis, group).copy_(x.narrow(axis, begin, end - begin).amax(axis))
        begin = end
    return result


def _floor_pow2(x):
    """frexp's exponents are exact."""
    power = torch.ldexp(torch.full_like(x, 0.5), torch.frexp(x).exponent)
    return torch.where(torch.isfinite(x) & (x != 0), power.copysign(x), x)


def _window_of(attrs):
    dims = len(attrs["stride"])
    return attrs["stride"], attrs["padding"], attrs["dilation"], False, [0] * dims, attrs["groups"]


def _convolution(x, attrs, types):
    return torch.ops.aten.convolution(x[0], x[1], None, *_window_of(attrs)).to(types[0][0])


def _convolution_input_gradient(x, attrs, types):
    like = torch.empty(types[0][1], dtype=x[0].dtype)
    arguments = (x[0], like, x[1], None, *_window_of(attrs), [True, False, False])
    return torch.ops.aten.convolution_backward(*arguments)[0].to(types[0][0])


def _convolution_weight_gradient(x, attrs, types):
    like = torch.empty(types[0][1], dtype=x[0].dtype)
    arguments = (x[0], x[1], like, None, *_window_of(attrs), [False, True, False])
    return torch.ops.aten.convolution_backward(*arguments)[1].to(types[0][0])


def _scan(scan):
    def of(x, attrs, types):
        if not attrs.get("reverse"):
            return scan(x[0], attrs["axis"])
        return scan(x[0].flip(attrs["axis"]), attrs["axis"]).flip(attrs["axis"])

    return of


def _attention_backward(x, attrs, types):
    """From the saved log-sum-exp: P = exp(S - lse), dS = P (dP - rowsum(dO O))."""
    do, q, k, v, o, lse = (t.double() for t in x[:6])
    group = q.shape[1] // k.shape[1]
    keys, vals = (t.repeat_interleave(group, dim=1) for t in (k, v))
    scores = attrs["scale"] * q @ keys.transpose(2, 3)
    if len(x) > 6:
        scores = scores + x[6].double()
    if attrs["causal"]:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
    p = (scores - lse[..., None]).exp()
    ds = p * (do @ vals.transpose(2, 3) - (do * o).sum(-1, keepdim=True))
    dq = attrs["scale"] * ds @ keys
    dk = attrs["scale"] * ds.transpose(2, 3) @ q
    dv = p.transpose(2, 3) @ do
    dk, dv = (t.reshape(k.shape[0], k.shape[1], group, *k.shape[2:]).sum(2) for t in (dk, dv))
    return [t.to(d) for t, (d, _) in zip((dq, dk, dv, ds), types)]


def _composite(function):
    def run(x, attrs, types):
        results = function(*(v.double() for v in x))
        results = results if isinstance(results, tuple) else (results,)
        return [r.to(d) for r, (d, _) in zip(results, types)]

    return run


def _gelu_backward(dy, x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(torch.nn.functional.gelu(x), x, dy)[0]


def _gelu_tanh_backward(dy, x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(torch.nn.functional.gelu(x, approximate="tanh"), x, dy)[0]


def _rms_norm_backward(dy, x, rstd, w):
    xhat, g = x * rstd, dy * w
    dx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True))
    return dx, (dy * xhat).flatten(0, -2).sum(0)


def _layer_norm_backward(dy, x, mean, rstd, w):
    xhat, g = (x - mean) * rstd, dy * w
    dx = rstd * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True))
    return dx, (dy * xhat).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


OPS = {
    "full": lambda x, a, t: torch.full(t[0][1], a["value"], dtype=t[0][0]),
    "iota": _iota,
    "cast": lambda x, a, t: x[0].to(t[0][0]),
    "where": lambda x, a, t: torch.where(*x),
    "sum": _reduction(torch.sum),
    "amax": _reduction(torch.amax),
    "amin": _reduction(torch.amin),
    "matmul": _matmul,
    "grouped_matmul": _grouped_matmul,
    "segment_amax": _segment_amax,
    "scatter_lines": _scatter_lines,
    "floor_pow2": _pointwise(_floor_pow2),
    "attention_backward": _attention_backward,
    "convolution": _convolution,
    "convolution_input_gradient": _convolution_input_gradient,
    "convolution_weight_gradient": _convolution_weight_gradient,
    "cumsum": _scan(torch.cumsum), "cumprod": _scan(torch.cumprod),
    "reshape": lambda x, a, t: x[0].reshape(a["shape"]),
    "permute": lambda x, a, t: x[0].permute(a["perm"]),
    "expand": lambda x, a, t: x[0].expand(a["shape"]),
    "slice": lambda x, a, t: x[0][_window(x[0], a)],
    "flip": lambda x, a, t: x[0].flip(a["axes"]),
    "pad": _pad,
    "cat": lambda x, a, t: torch.cat(x, a["axis"]),
    "slice_scatter": _slice_scatter,
    "index_select": _index_select,
    "gather": _gather,
    "index_add": _index_add,
    "fma": _pointwise(lambda x, y, z: x * y + z),
    "gelu_backward": _composite(_gelu_backward),
    "gelu_tanh_backward": _composite(_gelu_tanh_backward),
    "silu_backward": _composite(lambda dy, x: dy * (s := x.sigmoid()) * (1 + x * (1 - s))),
    "relu_backward": _composite(lambda dy, y: dy * (y > 0)),
    "tanh_backward": _composite(lambda dy, y: dy * (1 - y * y)),
    "sigmoid_backward": _composite(lambda dy, y: dy * y * (1 - y)),
    "softmax_backward": _composite(lambda dy, y: y * (dy - (dy * y).sum(-1, keepdim=True))),
    "log_softmax_backward": _composite(lambda dy, y: dy - y.exp() * dy.sum(-1, keepdim=True)),
    "rms_norm_backward": _composite(_rms_norm_backward),
    "layer_norm_backward": _composite(_layer_norm_backward),
}
for (
    _name
) in "add sub mul div neg abs sign maximum minimum relu floor reciprocal sqrt rsqrt".split():
    OPS[_name] = _pointwise(getattr(torch, _name))
for _name in "exp exp2 log log2 log1p tanh sigmoid sin cos erf pow fmod".split():
    OPS[_name] = _pointwise(getattr(torch, _name))
for _name in "eq ne lt le gt ge logical_and logical_or logical_not".split():
    OPS[_name] = _compare(getattr(torch, _name))


def errors(outputs, gradients):
    """{output index: |g - ref| / max(|ref|, 1e-5 x the norm of all gradients)}."""
    norms = {i: g.double().norm().item() for i, g in gradients.items()}
    floor = 1e-5 * sum(n * n for n in norms.values()) ** 0.5
    return {
        i: (outputs[i].double() - g.double()).norm().item() / max(norms[i], floor)
        for i, g in gradients.items()
    }
