"""Image models, exported and evaluated, give PyTorch's gradients."""

import copy
import dataclasses
import pathlib

import command
import examples
import interpreter
import pytest
import reference
import retrograd
import torch
import vision_models
from retrograd import schema

# fp32 sums in another order: a few hundred roundings of 6e-8. In fp64 as many of 1e-16, and what
# norms over few pixels make of them.
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-11}
# Eager PyTorch divides by 6 in the backward of hardsigmoid by a constant of fp32, in fp64 too.
EAGER_TOLERANCES = {("mobilenet", torch.float64): 1e-7}

MODELS = pytest.mark.parametrize("name", vision_models.MODELS)


@dataclasses.dataclass
class Exported:
    path: pathlib.Path
    bundle: pathlib.Path
    eager: dict  # parameter name -> gradient by eager PyTorch


@pytest.fixture(scope="session")
def vision(tmp_path_factory):
    """vision(name) -> Exported, in fp32 and contiguous; options as vision_models.make's."""
    done = {}

    def export(name, **options):
        key = (name, *options.items())
        if key not in done:
            folder = tmp_path_factory.mktemp("vision")
            model, args = vision_models.make(name, **options)
            eager = copy.deepcopy(model)  # a run changes the statistics of batch norms
            (path,) = retrograd.export_backward(model, args, {}, folder / name, bundle=True)
            gradients = examples.eager_gradients(eager, args, {})
            done[key] = Exported(path, folder / f"{name}.safetensors", gradients)
        return done[key]

    return export


def _check(name, dtype, graph, outputs, recorded, eager):
    tolerance = TOLERANCES[dtype]
    assert max(interpreter.errors(outputs, recorded).values()) <= tolerance
    by_index = {i: eager[graph.outputs[i].name] for i in recorded}
    assert {graph.outputs[i].name for i in recorded} == set(eager)
    tolerance = EAGER_TOLERANCES.get((name, dtype), tolerance)
    assert max(interpreter.errors(outputs, by_index).values()) <= tolerance


VARIANTS = pytest.mark.parametrize(
    "dtype, channels_last",
    [(torch.float32, False), (torch.float64, True)],
    ids=["fp32-nchw", "fp64-nhwc"],
)


def _options(dtype, channels_last):
    return dict(dtype=dtype, channels_last=channels_last) if channels_last else {}


@reference.needs_program
@MODELS
@VARIANTS
def test_the_reference_evaluator_gives_the_gradients_of_pytorch(
    vision, tmp_path, name, dtype, channels_last
):
    exported = vision(name, **_options(dtype, channels_last))
    graph, outputs, recorded = reference.evaluate_file(exported.path, exported.bundle, tmp_path)
    _check(name, dtype, graph, outputs, recorded, exported.eager)


@command.needs_retrograd
@MODELS
@VARIANTS
def test_the_generated_kernels_give_them_on_the_host(vision, name, dtype, channels_last):
    exported = vision(name, **_options(dtype, channels_last))
    command.run_and_check(exported.path, exported.bundle, "--device", "host")


@MODELS
def test_the_graph_computes_them_in_its_own_types(vision, name):
    exported = vision(name)
    graph, outputs, recorded = interpreter.evaluate_file(exported.path, exported.bundle)
    _check(name, torch.float32, graph, outputs, recorded, exported.eager)


GRADIENTS = {"convolution_input_gradient", "convolution_weight_gradient"}
OPS = {
    "resnet": GRADIENTS,
    "mobilenet": GRADIENTS | {"matmul"},
    "convnext": GRADIENTS | {"matmul"},
    "vit": {"attention_backward", "convolution_weight_gradient", "matmul"},
    "unet": GRADIENTS | {"convolution"},
}


@MODELS
def test_convolutions_stay_one_op_a_gradient(vision, name):
    graph = schema.load(vision(name).path)
    assert OPS[name] <= {n.op for n in graph.nodes}


def test_under_bf16_autocast_gradients_agree_to_a_few_roundings(tmp_path):
    """A block alone: norms over few pixels, one behind the other, would amplify a rounding.

    oneDNN's convolutions in bf16 end on an illegal instruction on some processors."""
    torch.manual_seed(0)
    block, x = vision_models.ConvNextBlock(8), torch.randn(2, 8, 9, 9)
    no_onednn = torch.backends.mkldnn.flags(enabled=False)
    with no_onednn, torch.autocast("cpu", dtype=torch.bfloat16):
        (path,) = retrograd.export_backward(
            block, (x,), {}, tmp_path / "block", loss_fn=lambda y: y.float().square().mean(),
            bundle=True,
        )  # fmt: skip
    graph, outputs, gradients = interpreter.evaluate_file(path, tmp_path / "block.safetensors")
    assert "convolution_weight_gradient" in {n.op for n in graph.nodes}
    assert max(interpreter.errors(outputs, gradients).values()) <= 2e-2
