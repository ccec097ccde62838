"""export_backward: from a PyTorch model to the files that the planner reads."""

import pathlib

import torch

from retrograd import bundle as bundles
from retrograd.atomic_file import write_atomically
from retrograd.capture import capture_backward
from retrograd.errors import ExportError
from retrograd.names import TensorNames
from retrograd.sizes.marks import marks_of
from retrograd.translate import schema_dtype, translate

SUFFIX = ".bwd.pb"


def export_backward(
    fn_or_model,
    args=(),
    kwargs=None,
    path=None,
    *,
    bundle=None,
    composites="decomposed",
    run=True,
    loss_fn=None,
    dynamic_shapes=None,
):
    """Writes the backward graphs of fn_or_model(*args, **kwargs) and returns their paths.

    fn_or_model: an nn.Module or a function. Its result, or loss_fn(result) if given, must be a
        scalar tensor, an object with a `loss` that is one, or a sequence that begins with one.
    path: where the graph goes: DIR/NAME or DIR/NAME.bwd.pb. A model with graph breaks gives
        NAME.0.bwd.pb, NAME.1.bwd.pb, ... in the order of the forward pass.
    bundle: also write the recorded inputs and the gradients that PyTorch computed: True for
        NAME.safetensors beside each graph, or the path of the one bundle. Needs run.
    composites: "decomposed" captures the very graph that Inductor would compile; "whole" keeps the
        backwards of norms, softmax and activations as one op each.
    run: False captures without executing anything; types and strides are then PyTorch's
        predictions instead of recorded ones, and the model must compile to one graph.
    dynamic_shapes: extents of arguments that vary: for an argument by its parameter's name, a dict from
        dims to the sizes' names or to torch.export.Dim(name, min=, max=). Extents of one name are equal.
        The graph stands at the sizes of this call and says how its numbers follow from the names
        (docs/format.md): `retrograd run GRAPH --bind name=number`, native.Graph.bind. Extents that
        torch._dynamo.mark_dynamic has marked vary as well, by names such as ids_0.

    Complex tensors are exported as real ones with one axis more, of the real and the imaginary part, as
    torch.view_as_real has them: inputs, gradients and the bundle's tensors, too.

    Runs on the device that the model and the arguments are on, under the caller's autocast, and
    leaves the parameters' `grad` as it was. Raises ExportError, with the op, the node and the line
    of the model, for what cannot be exported.
    """
    if path is None:
        raise ExportError("export_backward needs a path to write to")
    if bundle and not run:
        raise ExportError("a bundle holds recorded tensors: it needs run=True")
    captured = captured_backwards(
        fn_or_model, args, kwargs, composites=composites, run=run, loss_fn=loss_fn,
        dynamic_shapes=dynamic_shapes,
    )  # fmt: skip
    stem = pathlib.Path(str(path).removesuffix(SUFFIX))
    if len(captured) > 1 and isinstance(bundle, (str, pathlib.Path)):
        raise ExportError("the model has graph breaks: pass bundle=True for one bundle a graph")
    stems = [stem]
    if len(captured) > 1:
        stems = [stem.with_name(f"{stem.name}.{i}") for i in range(len(captured))]
    return [_write(c, s, bundle) for c, s in zip(captured, stems)]


def captured_backwards(
    fn_or_model, args=(), kwargs=None, *, loss_fn=None, dynamic_shapes=None, **options
):
    """The capture.CapturedBackwards that export_backward writes; options as capture_backward's."""
    kwargs = dict(kwargs or {})
    args = tuple(args)
    names = TensorNames(fn_or_model, args, kwargs)
    names.add_closed_over(loss_fn)
    sizes = marks_of(dynamic_shapes or {}, names)

    def scalar_loss(*a, **k):
        result = fn_or_model(*a, **k)
        return loss_of(result if loss_fn is None else loss_fn(result))

    return capture_backward(scalar_loss, args, kwargs, names, sizes=sizes, **options)


def loss_of(result):
    """The loss in a model's result; the result itself if none is found (checked later)."""
    if isinstance(result, torch.Tensor):
        return result
    if getattr(result, "loss", None) is not None:
        return result.loss
    if isinstance(result, (tuple, list)) and result:
        return result[0]
    return result


def _write(captured, stem, bundle):
    graph, constants = translate(captured, stem.name)
    path = stem.with_name(stem.name + SUFFIX)
    write_atomically(path, graph.SerializeToString(deterministic=True))
    if bundle:
        where = stem.with_name(stem.name + ".safetensors") if bundle is True else bundle
        inputs = {i: schema_dtype(p.recorded) for i, p in enumerate(captured.inputs)}
        inputs |= {i: tensor.flatten() for i, tensor in constants.items()}
        gradients = {i: o.recorded for i, o in enumerate(captured.outputs) if o.node is not None}
        bundles.write(where, stem.name, inputs, gradients)
    return path
