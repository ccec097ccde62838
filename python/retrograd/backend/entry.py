"""The backend that torch.compile calls."""

import copy
import dataclasses
import time

import torch
from torch._inductor.compile_fx import compile_fx, compile_fx_inner

from retrograd import (
    decompositions,
    distinct_indices,
    known_values,
    native,
    traced_gradients,
    translate,
)
from retrograd.backend import divided, dynamic, image_order, messages
from retrograd.backend.arrived import arrived_backward, input_names
from retrograd.backend.compiled import CompiledBackward, Recipe
from retrograd.backend.node import DirectGradients
from retrograd.backend.settings import Settings
from retrograd.errors import ExportError
from retrograd.sizes.specialize import has_symbols, hinted


def backend(module, example_inputs, *, mode=None, options=None):
    """Compiles a graph of Dynamo's. mode, options: as torch.compile takes them; see Settings.

    ValueError for unknown options. The backward is compiled when it first runs.
    """
    settings = Settings.of(mode, options)
    names = input_names(module)
    # AOTAutograd's cache does not look at inner_compile: without a tag of our own it would hand
    # out Inductor's backwards. Forwards are Inductor's, and share its entries.
    tag = torch.compiler.config.cache_key_tag
    plain = torch.compiler.config.patch(cache_key_tag=tag)(compile_fx_inner)
    decided, distinct = None, {}

    def inner_compile(graph_module, inputs, **how):
        nonlocal decided, distinct
        if not how.get("is_backward"):
            decided = known_values.decided_part(graph_module.graph)
            distinct = distinct_indices.axes_of(graph_module.graph)
            if how.get("is_inference"):
                return plain(graph_module, inputs, **how)
            with image_order.patched(graph_module.graph, settings):
                return plain(graph_module, inputs, **how)
        distinct_indices.mark(graph_module.graph, distinct)
        try:
            return compile_backward(
                graph_module,
                inputs,
                names,
                settings,
                how.get("boxed_forward_device_index"),
                decided,
            )
        except Exception as error:  # whatever it is, Inductor can
            if settings.require_full:
                raise
            messages.once.warn(f"this backward runs through Inductor: {error}")
            messages.log.debug("falls back", exc_info=True)
            return _boxed(plain(graph_module, inputs, **how))

    ours = f"{tag} retrograd {native.load().version().decode()} {settings.tag()}"
    with torch.compiler.config.patch(cache_key_tag=ours), traced_gradients.in_few_ops():
        compiled = compile_fx(
            module, example_inputs, inner_compile=inner_compile,
            config_patches=settings.inductor_patches(),
            decompositions=decompositions.of_compiler(),
        )  # fmt: skip
    if not settings.direct_gradients:
        return compiled
    return DirectGradients(compiled, settings.direct_forward, settings.kept_plans())


backend.reset = messages.once.forget  # torch._dynamo.reset() calls it


def compile_backward(module, example_inputs, names, settings, forward_graphs=None, decided=None):
    """What runs the graph, which stays as it is: a CompiledBackward, or a DynamicBackward if it has
    dynamic sizes. forward_graphs: as CompiledBackward has it. decided: as arrived_backward has it, for
    sizes that are numbers. ExportError or native.Failure if there can be none."""
    if not has_symbols(example_inputs):
        return _compile_numbers(module, example_inputs, names, settings, forward_graphs, decided)
    settings = dataclasses.replace(settings, sizes_vary=True)
    compiled = dynamic.DynamicBackward(
        torch.fx.GraphModule(module, copy.deepcopy(module.graph)),
        example_inputs,
        lambda static, fakes, sizes: translated(
            static, fakes, names, settings, owned=True, sizes=sizes
        ),
        lambda recipe: CompiledBackward(recipe, forward_graphs),
        settings.kept_plans(),
    )
    compiled.prepare(hinted(example_inputs))  # refuses what no sizes would make possible
    _keep_for_other_runs()
    return compiled


def _compile_numbers(module, example_inputs, names, settings, forward_graphs, decided):
    """What compile_backward makes of a graph without symbols."""
    try:
        compiled = compile_static(module, example_inputs, names, settings, forward_graphs, decided)
    except ExportError as refusal:
        if decided is not None:  # what the forward has saved is there
            return _compile_numbers(module, example_inputs, names, settings, forward_graphs, None)
        if refusal.node is None or settings.require_full or not settings.divided:
            raise
        parts = divided.DividedBackward(
            module, example_inputs, refusal,
            lambda piece, fakes: CompiledBackward(
                translated(piece, fakes, names, settings, owned=True, donated=()), forward_graphs
            ),
        )  # fmt: skip
        _keep_for_other_runs()
        messages.once.warn(parts.told(refusal))
        return _boxed(parts)
    _keep_for_other_runs()
    compiled.save_for_others()
    return compiled


def compile_static(module, example_inputs, names, settings, forward_graphs=None, decided=None):
    """A CompiledBackward of a graph whose sizes are known."""
    start = time.monotonic()
    recipe = translated(module, example_inputs, names, settings, decided=decided)
    compiled = CompiledBackward(recipe, forward_graphs)
    messages.log.info(
        "%s: %d kernels and library calls, ready in %.2f s", compiled.what,
        compiled.program.executable.describe()["kernels"], time.monotonic() - start,
    )  # fmt: skip
    return compiled


def translated(module, example_inputs, names, settings, **how):
    """The Recipe of a graph. how: as arrived_backward has it; with sizes its graph has symbols."""
    captured, device = arrived_backward(module, example_inputs, names, **how)
    graph, constants = translate.translate(captured, "backward", settings.matmul_gradients())
    return Recipe(
        graph=graph.SerializeToString(deterministic=True),
        constants=list(constants.values()),
        dtypes=[i.dtype for i in captured.inputs],
        device=device,
        settings=settings,
        what=f"backward of {len(captured.outputs)} gradients",
        unread=_unread_scalars(graph, len(captured.inputs)),
    )


def _unread_scalars(graph, count):
    """The numbers of those among the first `count` inputs of the schema.Graph that are scalars which
    no node reads."""
    inputs = [owner for owner, node in enumerate(graph.nodes) if node.op == "input"][:count]
    read = {operand.node for node in graph.nodes for operand in node.operands}
    read.update(output.value.node for output in graph.outputs if output.HasField("value"))
    return tuple(
        number
        for number, owner in enumerate(inputs)
        if owner not in read and not graph.nodes[owner].results[0].dims
    )


def _keep_for_other_runs():
    """Nothing of what autograd hands over is overwritten, so that a backward may run again
    (retain_graph=True), which AOTAutograd else refuses."""
    metadata = getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)
    if metadata is not None:
        metadata.bw_donated_idxs = []


def _boxed(compiled):
    """A function around what is not saved under our tag: Inductor's result, or a DividedBackward."""

    def run(inputs):
        return compiled(inputs)

    run._boxed_call = True
    return run
