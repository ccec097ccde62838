"""retrograd.native: the C interface in Python. Every function and struct against the header; layers
against those of C++ and against PyTorch; what goes wrong against what it says."""

import ctypes
import gc
import pathlib
import re
import subprocess
import sys
import threading

import conftest
import numpy as np
import pytest
import torch
from retrograd import native
from retrograd.native import layers, library, structs

HEADER = conftest.ROOT / "include/retrograd/retrograd.h"
TEXT = """%a = input name="a" kind=tangent f32[2,3]
%b = input name="b" kind=parameter f32[3]
%c = mul %a %b
output %c name="c"
%d = sum %a axes=[0]
output %d name="d"
"""


@pytest.fixture(scope="module")
def device():
    return native.Device()


@pytest.fixture(scope="module")
def product(device):
    return native.Executable(native.Graph.parse(TEXT), device)


# --- the header ---------------------------------------------------------------------------------


def test_every_function_of_the_header_is_declared():
    declared = re.findall(r"^RG_API [^;(]*?\brg_(\w+)\(", HEADER.read_text(), re.M)
    assert sorted(declared) == sorted(library.FUNCTIONS)


def test_every_struct_lies_as_the_header_says(tmp_path):
    classes = {
        "rg_error": structs.Error, "rg_tensor": structs.Tensor, "rg_value": structs.Value,
        "rg_attribute": structs.Attribute, "rg_allocator": structs.Allocator,
        "rg_device_options": structs.DeviceOptions, "rg_plan_options": structs.PlanOptions,
        "rg_executable_options": structs.ExecutableOptions, "rg_run": structs.Run,
    }  # fmt: skip
    lines = []
    for name, class_ in classes.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in class_._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
    source = tmp_path / "layout.c"
    source.write_text(
        f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {" ".join(lines)} return 0; }}'
    )
    include = HEADER.parents[1]
    subprocess.run(["gcc", f"-I{include}", source, "-o", tmp_path / "layout"], check=True)
    told = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    for line in told.splitlines():
        what, number = line.split()
        name, _, field = what.partition(".")
        of = classes[name]
        assert int(number) == (getattr(of, field).offset if field else ctypes.sizeof(of)), what


def test_the_package_needs_no_pytorch():
    program = "import sys, retrograd.native; assert 'torch' not in sys.modules, 'torch is loaded'"
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(conftest.ROOT / "python")}
    )


def test_a_device_takes_a_file_of_choices(tmp_path):
    tuned = tmp_path / "tuned.textproto"
    tuned.write_text("version: 1\n")
    native.Device(tuned=tuned, tuning_budget_s=1.5)
    tuned.write_text("version: 2\n")
    with pytest.raises(native.Failure, match="tuned.textproto:1: a file of choices has version: 1"):
        native.Device(tuned=tuned)
    with pytest.raises(native.Failure, match="a tuning budget of -1 s"):
        native.Device(tuning_budget_s=-1)


# --- graphs, plans, runs --------------------------------------------------------------------------


def test_a_graph_tells_what_it_takes_and_survives_both_forms(tmp_path):
    graph = native.Graph.parse(TEXT)
    assert [t.name for t in graph.inputs] == ["a", "b"]
    a = graph.inputs[0]
    assert (a.dtype, a.shape, a.strides, a.kind, a.bytes) == ("f32", (2, 3), (3, 1), "tangent", 24)
    assert [(t.name, t.shape) for t in graph.outputs] == [("c", (2, 3)), ("d", (3,))]
    for name in ("graph.rgt", "graph.bwd.pb"):
        graph.save(tmp_path / name)
        assert str(native.Graph.load(tmp_path / name)) == str(graph)
    assert native.Graph.deserialize(graph.serialize()).serialize() == graph.serialize()


def test_a_plan_explains_itself():
    plan = native.Plan(native.Graph.parse(TEXT), spec="h100")
    assert plan.num_kernels >= 1 and plan.predicted_ns > 0
    assert "kernel" in plan.explain()
    assert plan.explain("json")["device"]
    assert plan.explain("html").lstrip().startswith("<!")
    with pytest.raises(ValueError, match="must be one of text, json, html"):
        plan.explain("pdf")


def test_a_run_takes_arrays_tensors_memory_and_addresses(product, device):
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2, 3], np.float32)
    expected = a * b, a.sum(0)
    results = [np.empty((2, 3), np.float32), np.empty(3, np.float32)]
    product.run([a, b], results)
    assert all((got == want).all() for got, want in zip(results, expected, strict=True))

    tensors = [torch.empty(2, 3), torch.empty(3)]
    product.run([torch.from_numpy(a), b.ctypes.data], tensors)
    assert all((t.numpy() == want).all() for t, want in zip(tensors, expected, strict=True))

    memory = [native.Memory(device, t.bytes) for t in product.inputs + product.outputs]
    memory[0].copy_in(a)
    memory[1].copy_in(b.tobytes())
    product.run(memory[:2], memory[2:])
    got = np.empty((2, 3), np.float32)
    memory[2].copy_out(got)
    assert (got == expected[0]).all()
    assert product.last_run_us > 0
    assert all(step["measured_us"] > 0 for step in product.time_steps(1))
    assert product.describe()["inputs"] and "kernel" in product.explain()


def test_gradients_accumulate_where_it_is_asked_for(device):
    adds = native.Executable(native.Graph.parse(TEXT), device, accumulate=[False, True])
    a, b = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    c, d = np.full((2, 3), 5, np.float32), np.full(3, 5, np.float32)
    adds.run([a, b], [c, d])
    adds.run([a, b], [c, d])
    assert (c == 1).all() and (d == 9).all()


def test_a_caller_may_give_the_workspace(device):
    text = """%a = input name="a" kind=saved f32[64,48]
%b = input name="b" kind=saved f32[48,32]
%y = matmul %a %b
%t = tanh %y
%s = sum %t axes=[0]
output %s name="s"
"""
    given = native.Executable(native.Graph.parse(text), device, caller_workspace=True)
    assert given.workspace_bytes > 0 and 256 % given.workspace_alignment == 0
    own = native.Executable(native.Graph.parse(text), device)
    assert own.memory[0] == given.memory[0] > 0 == given.memory[1]
    assert own.memory[1] == own.workspace_bytes
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((64, 48), (48, 32)))
    s = np.empty(32, np.float32)
    workspace = native.Memory(device, given.workspace_bytes)
    given.run([a, b], [s], workspace)
    np.testing.assert_allclose(s, np.tanh(a @ b).sum(0), rtol=1e-4, atol=1e-4)
    with pytest.raises(native.Failure, match="workspace") as failed:
        given.run([a, b], [s])
    assert failed.value.code == "RG_INVALID_ARGUMENT"


def test_making_can_be_watched_and_ended(device):
    graph, told, lines = native.Graph.parse(TEXT), [], []
    native.Executable(
        graph, device, progress=lambda stage, what: told.append((stage, what)), log=lines.append
    )
    assert [stage for stage, _ in told][:2] == ["plan", "compile"]
    with pytest.raises(native.Failure, match="RG_CANCELLED"):
        native.Executable(graph, device, progress=lambda stage, what: False)
    cancellation = native.Cancellation()
    cancellation.cancel()
    with pytest.raises(native.Failure, match="RG_CANCELLED"):
        native.Executable(graph, device, cancellation=cancellation)

    def fails(stage, what):
        raise KeyError(stage)

    with pytest.raises(KeyError, match="plan"):
        native.Executable(graph, device, progress=fails)


def test_threads_make_and_run_their_own(device):
    failures = []

    def work(n):
        try:
            graph = native.Graph.parse(TEXT.replace("f32[2,3]", f"f32[{n},3]"))
            executable = native.Executable(graph, device)
            a, b = np.full((n, 3), n, np.float32), np.ones(3, np.float32)
            c, d = np.empty((n, 3), np.float32), np.empty(3, np.float32)
            for _ in range(20):
                executable.run([a, b], [c, d])
                assert (c == n).all() and (d == n * n).all()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: native.Graph.load("/nowhere.bwd.pb"), native.Failure, "/nowhere.bwd.pb"),
        (lambda: native.Graph.parse("%a = sum"), native.Failure, "line 1"),
        (lambda: native.Graph.deserialize(b"\xff"), native.Failure, "RG_INVALID_ARGUMENT"),
        (lambda: native.Device("abacus"), native.Failure, "abacus"),
        (lambda: native.Plan(native.Graph.parse(TEXT), spec="z80"), native.Failure, "z80"),
        (lambda: native.find("/nowhere.so"), FileNotFoundError, "RETROGRAD_LIBRARY"),
        (
            lambda: native.Executable(native.Graph.parse(TEXT), native.Device(), accumulate=[1]),
            native.Failure,
            "accumulate",
        ),
        (
            lambda: native.Plan(native.Graph.parse(TEXT), settings={"no": 1}),
            native.Failure,
            "no",
        ),
    ],
)
def test_failures_say_what_is_wrong(make, error, words):
    with pytest.raises(error, match=re.escape(words)):
        make()


def test_wrong_arrays_are_refused_before_they_are_touched(product):
    a, b = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    c, d = np.empty((2, 3), np.float32), np.empty(3, np.float32)
    for inputs, words in (
        ([a], "1 inputs given; the graph has 2"),
        ([a, b[:2]], "input 1 ('b') has 8 bytes; 12 are needed for f32[3]"),
        ([a, b[::-1]], "negative strides"),
        ([torch.ones(7)[3:], b], "input 0 ('a') has 16 bytes"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            product.run(inputs, [c, d])
    with pytest.raises(TypeError, match="list is no address"):
        product.run([[1.0], b], [c, d])
    with pytest.raises(native.Failure, match="output 1"):
        product.run([a, b], [c, None])


def test_what_is_closed_says_so_and_nothing_is_destroyed_twice(device):
    graph = native.Graph.parse(TEXT)
    with graph:
        pass
    graph.close()
    with pytest.raises(ValueError, match="this Graph is closed"):
        str(graph)
    memory = native.Memory(device, 8)
    with pytest.raises(ValueError, match="4 bytes do not fit these 8 bytes"):
        memory.copy_in(b"1234")
    del graph, memory
    gc.collect()


def test_a_builder_refuses_what_is_no_graph():
    b = native.Builder("wrong")
    with pytest.raises(ValueError, match="dtype 'float': must be one of bool, i8"):
        b.input("x", "float", (2,))
    with pytest.raises(ValueError, match="at most 12 dims"):
        b.input("x", "f32", (1,) * 13)
    x = b.input("x", "f32", (2, 3), kind="tangent", strides=(1, 2), alignment=16)
    assert (x.dtype, x.shape) == ("f32", (2, 3))
    with pytest.raises(native.Failure, match="matmul"):
        b.add("matmul", x, x)


# --- layers ---------------------------------------------------------------------------------------

F = torch.nn.functional


def _gradients(of, dy, *inputs):
    """The result of of(*inputs) and the gradients of the floating ones."""
    leaves = [t.clone().requires_grad_() if t.is_floating_point() else t for t in inputs]
    y = of(*leaves)
    y.backward(dy)
    return y.detach(), *[t.grad for t in leaves if t.is_floating_point()]


def _pointwise(forward, backward, reads_result):
    def add(b, x, dy):
        y = forward(b, x)
        return {"y": y, "dx": backward(b, dy, y if reads_result else x)}

    return {"x": (5, 6), "dy": (5, 6)}, add


def _linear(b, x, w, bias, dy):
    y = layers.linear(b, x, w, bias)
    return {"y": y, **layers.linear_backward(b, dy, x, w)._asdict()}


def _layer_norm(b, x, w, bias, dy):
    made = layers.layer_norm(b, x, w, bias)
    gradients = layers.layer_norm_backward(b, dy, x, made.mean, made.rstd, w)
    return {"y": made.y, **gradients._asdict()}


def _rms_norm(b, x, w, dy):
    made = layers.rms_norm(b, x, w)
    gradients = layers.rms_norm_backward(b, dy, x, made.rstd, w)
    return {"y": made.y, "dx": gradients.dx, "dw": gradients.dw}


def _cross_entropy(b, x, labels):
    made = layers.softmax_cross_entropy(b, x, labels)
    dx = layers.softmax_cross_entropy_backward(b, made.log_probabilities, labels)
    return {"y": made.loss, "dx": dx}


def _attention(b, q, k, v, dy):
    made = layers.attention(b, q, k, v, 0.5)
    gradients = layers.attention_backward(b, dy, q, k, v, made.probabilities, 0.5)
    return {"y": made.y, **gradients._asdict()}


def _sgd(b, p, g):
    return {"p": layers.sgd(b, p, g, 0.1)}


def _adam(b, p, g, m, v, step):
    return layers.adam(b, p, g, m, v, step, rate=0.01)._asdict()


def _torch_adam(p, g, m, v, step):
    p, m, v, before = p.clone(), m.clone(), v.clone(), step - 1
    torch.optim._functional.adam(
        [p], [g], [m], [v], [], [before.clone()], amsgrad=False, beta1=0.9, beta2=0.999, lr=0.01,
        weight_decay=0, eps=1e-8, maximize=False, foreach=False, fused=False, capturable=False,
        differentiable=False,
    )  # fmt: skip
    return p, m, v


# name: (shapes of inputs, what adds the layer, PyTorch's results)
LAYERS = {
    "linear": (
        {"x": (5, 3), "w": (4, 3), "bias": (4,), "dy": (5, 4)},
        _linear,
        lambda x, w, bias, dy: _gradients(F.linear, dy, x, w, bias),
    ),
    "relu": (
        *_pointwise(layers.relu, layers.relu_backward, True),
        lambda x, dy: _gradients(F.relu, dy, x),
    ),
    "gelu": (
        *_pointwise(layers.gelu, layers.gelu_backward, False),
        lambda x, dy: _gradients(F.gelu, dy, x),
    ),
    "silu": (
        *_pointwise(layers.silu, layers.silu_backward, False),
        lambda x, dy: _gradients(F.silu, dy, x),
    ),
    "softmax": (
        *_pointwise(layers.softmax, layers.softmax_backward, True),
        lambda x, dy: _gradients(lambda t: F.softmax(t, -1), dy, x),
    ),
    "layer_norm": (
        {"x": (5, 6), "w": (6,), "bias": (6,), "dy": (5, 6)},
        _layer_norm,
        lambda x, w, bias, dy: _gradients(lambda *t: F.layer_norm(t[0], (6,), *t[1:]), dy, x, w, bias),
    ),
    "rms_norm": (
        {"x": (5, 6), "w": (6,), "dy": (5, 6)},
        _rms_norm,
        lambda x, w, dy: _gradients(lambda *t: F.rms_norm(t[0], (6,), t[1], 1e-6), dy, x, w),
    ),
    "softmax_cross_entropy": (
        {"x": (5, 7), "labels": (5,)},
        _cross_entropy,
        lambda x, labels: _gradients(F.cross_entropy, None, x, labels),
    ),
    "attention": (
        {"q": (2, 3, 5, 4), "k": (2, 3, 6, 4), "v": (2, 3, 6, 4), "dy": (2, 3, 5, 4)},
        _attention,
        lambda q, k, v, dy: _gradients(
            lambda *t: F.scaled_dot_product_attention(*t, scale=0.5), dy, q, k, v
        ),
    ),
    "sgd": ({"p": (5, 6), "g": (5, 6)}, _sgd, lambda p, g: (p - 0.1 * g,)),
    "adam": (
        {"p": (5, 6), "g": (5, 6), "m": (5, 6), "v": (5, 6), "step": ()},
        _adam,
        _torch_adam,
    ),
}


def _add(b, name, prefix=""):
    """The layer's inputs, nodes and outputs, with names that begin so."""
    shapes, add, _ = LAYERS[name]
    inputs = [
        b.input(prefix + n, "i64" if n == "labels" else "f64", s) for n, s in shapes.items()
    ]
    for output, value in add(b, *inputs).items():
        b.output(value, prefix + output)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_adds_the_nodes_of_the_c_plus_plus_layer(name):
    b = native.Builder(name)
    _add(b, name)
    path = conftest.ROOT / f"tests/api/layers/{name}.rgt"
    assert str(b.finish()) == path.read_text()


def test_there_is_a_layer_here_for_each_file():
    files = pathlib.Path(conftest.ROOT / "tests/api/layers").glob("*.rgt")
    assert {file.stem for file in files} == set(LAYERS)


def test_layers_compute_what_pytorch_does(device):
    b = native.Builder("layers")
    for name in LAYERS:
        _add(b, name, name + ".")
    graph = b.finish()
    torch.manual_seed(3)
    values = {}
    for tensor in graph.inputs:
        values[tensor.name] = torch.randn(tensor.shape, dtype=torch.float64)
        if tensor.name.endswith(".labels"):
            values[tensor.name] = torch.tensor([0, 6, 3, 3, 1])
    values["adam.v"] = values["adam.v"].square()
    values["adam.step"] = torch.tensor(4.0, dtype=torch.float64)
    results = [torch.empty(t.shape, dtype=torch.float64) for t in graph.outputs]
    executable = native.Executable(graph, device)
    executable.run([values[t.name] for t in graph.inputs], results)
    found = {t.name: r for t, r in zip(graph.outputs, results, strict=True)}
    for name, (shapes, _, pytorch) in LAYERS.items():
        expected = pytorch(*(values[f"{name}.{n}"] for n in shapes))
        got = [found[t.name] for t in graph.outputs if t.name.startswith(name + ".")]
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
