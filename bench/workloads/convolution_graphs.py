"""Single convolutions: their shapes, and their backward as graphs of ours."""

import csv
import dataclasses
import operator

NAMES = {"bf16": "bf16", "fp16": "f16", "fp32": "f32"}  # of dtypes in the text of a graph


@dataclasses.dataclass(frozen=True)
class Convolution:
    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: tuple
    padding: tuple
    dilation: tuple
    groups: int
    needs_dx: bool

    @property
    def x(self):
        return (self.n, self.c, self.h, self.w)

    @property
    def weight(self):
        return (self.k, self.c // self.groups, self.r, self.s)

    @property
    def y(self):
        windows = zip(self.x[2:], self.weight[2:], self.stride, self.padding, self.dilation)
        out = [(i + 2 * p - d * (f - 1) - 1) // t + 1 for i, f, t, p, d in windows]
        return (self.n, self.k, *out)

    @property
    def is_pointwise(self):
        """Whether every pixel is multiplied by one matrix."""
        one_tap = (self.r, self.s) == (1, 1) and self.padding == (0, 0)
        return one_tap and self.stride == (1, 1) and self.groups == 1

    def name(self):
        """2x64x56x56 64x3x3 s1x1 p1x1"""
        text = f"{'x'.join(map(str, self.x))} {self.k}x{self.r}x{self.s}"
        text += f" s{self.stride[0]}x{self.stride[1]} p{self.padding[0]}x{self.padding[1]}"
        text += f" d{self.dilation[0]}x{self.dilation[1]}" if self.dilation != (1, 1) else ""
        text += f" g{self.groups}" if self.groups > 1 else ""
        return text + ("" if self.needs_dx else ", dw alone")


def read_shapes(path):
    """{Convolution: {model: how often}}, in the file's order."""
    shapes = {}
    with open(path) as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            pair = {key: tuple(map(int, row[key].split("x"))) for key in ("stride", "pad", "dil")}
            shape = Convolution(
                *(int(row[key]) for key in "nchwkrs"), pair["stride"], pair["pad"], pair["dil"],
                int(row["groups"]), row["needs_dx"] == "1",
            )  # fmt: skip
            models = shapes.setdefault(shape, {})
            models[row["model"]] = models.get(row["model"], 0) + int(row["count"])
    return shapes


def _strides(shape, channels_last):
    n, c, h, w = shape
    return [c * h * w, 1, c * w, c] if channels_last else [c * h * w, h * w, w, 1]


def exported(case, gradients, tf32):
    """The graph, as a schema message, that the exporter makes of ATen's op on the case's operands.
    gradients: what the op gives."""
    import torch
    from retrograd import capture, schema
    from retrograd.translate import translate

    shape, graph, inputs = case.shape, torch.fx.Graph(), []
    for name, kind, tensor in (
        ("dy", schema.TANGENT, case.dy),
        ("x", schema.SAVED, case.x),
        ("w", schema.PARAMETER, case.w),
    ):  # fmt: skip
        node = graph.placeholder(name)
        node.meta["val"] = tensor
        inputs.append(
            capture.CapturedInput(
                node, name, kind, tensor.dtype, tuple(tensor.shape), tensor.stride(), 16, False,
                False,
            )
        )  # fmt: skip
    nodes = [i.node for i in inputs]
    window = list(shape.stride), list(shape.padding), list(shape.dilation)
    op = graph.call_function(
        torch.ops.aten.convolution_backward.default,
        (*nodes, None, *window, False, [0, 0], shape.groups, [shape.needs_dx, True, False]),
    )
    op.meta["val"] = [*([None] if not shape.needs_dx else []), *gradients, None]
    outputs = []
    for place, name, gradient in zip(range(2 - len(gradients), 2), case.names(), gradients):
        output = graph.call_function(operator.getitem, (op, place))
        output.meta["val"] = gradient
        outputs.append(
            capture.CapturedOutput(output, name, gradient.dtype, tuple(gradient.stride()))
        )
    numerics = schema.Graph().numerics
    numerics.allow_tf32 = tf32
    made, constants = translate(capture.CapturedBackward(graph, inputs, outputs, numerics), "conv")
    assert not constants
    return made


def _tensor(name, extents):
    return f"{name}[{','.join(map(str, extents))}]"


def text_of(shape, dtype, channels_last, matmuls, tf32=False):
    """The gradients as the ops convolution_input_gradient and convolution_weight_gradient or, for a
    pointwise convolution, as matmuls. They lie as the operands do."""

    def strides(extents):
        return f"strides=[{','.join(map(str, _strides(extents, channels_last)))}]"

    def given(label, kind, extents):
        head = f'%{label} = input name="{label}" kind={kind} {strides(extents)} alignment=16'
        return f"{head}  {_tensor(NAMES[dtype], extents)}"

    body = _matmuls if matmuls else _convolutions
    lines = ['graph "convolution"', *(["numerics tf32=1"] if tf32 else [])]
    lines += [given("dy", "tangent", shape.y), given("x", "saved", shape.x)]
    lines += [given("w", "parameter", shape.weight), *body(shape, NAMES[dtype], channels_last)]
    lines += [f'output %dx name="dx" {strides(shape.x)}'] if shape.needs_dx else []
    return "\n".join([*lines, f'output %dw name="dw" {strides(shape.weight)}']) + "\n"


def _convolutions(shape, name, _):
    def gradient(label, op, other, attribute, extents):
        attributes = {
            "dilation": shape.dilation, "groups": shape.groups, attribute: extents,
            "padding": shape.padding, "stride": shape.stride,
        }  # fmt: skip
        text = " ".join(f"{key}={_value(v)}" for key, v in attributes.items())
        return f"%{label} = {op} %dy %{other} {text}  {_tensor(name, extents)}"

    dw = gradient("dw", "convolution_weight_gradient", "x", "weight_shape", shape.weight)
    if not shape.needs_dx:
        return [dw]
    return [gradient("dx", "convolution_input_gradient", "w", "input_shape", shape.x), dw]


def _value(value):
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _matmuls(shape, name, channels_last):
    n, c, h, w, k = shape.n, shape.c, shape.h, shape.w, shape.k
    lines = [f"%matrix = reshape %w shape=[{k},{c}]"]
    if channels_last:  # pixels are rows
        for label, channels in (("dy", k), ("x", c)):
            lines += [
                f"%{label}_last = permute %{label} perm=[0,2,3,1]",
                f"%{label}_rows = reshape %{label}_last shape=[{n * h * w},{channels}]",
            ]
        lines += [
            "%dx_rows = matmul %dy_rows %matrix",
            f"%dx_last = reshape %dx_rows shape=[{n},{h},{w},{c}]",
            "%dx = permute %dx_last perm=[0,3,1,2]",
            "%dy_columns = permute %dy_rows perm=[1,0]",
            "%product = matmul %dy_columns %x_rows",
        ]
    else:  # an image is a matrix of channels and pixels
        lines += [
            f"%dy_images = reshape %dy shape=[{n},{k},{h * w}]",
            f"%x_images = reshape %x shape=[{n},{c},{h * w}]",
            "%across = permute %matrix perm=[1,0]",
            f"%of_each = expand %across shape=[{n},{c},{k}]",
            "%dx_images = matmul %of_each %dy_images",
            f"%dx = reshape %dx_images shape=[{n},{c},{h},{w}]",
            "%x_across = permute %x_images perm=[0,2,1]",
            "%products = matmul %dy_images %x_across dtype=f32",
            "%sum = sum %products axes=[0]",
            f"%product = cast %sum dtype={name}",
        ]
    return [*lines, f"%dw = reshape %product shape=[{k},{c},1,1]"]
