"""The backend that torch.compile calls."""

import time

import torch
from torch._inductor.compile_fx import compile_fx, compile_fx_inner

from retrograd import native, translate
from retrograd.backend import messages, programs
from retrograd.backend.arrived import arrived_backward, input_names
from retrograd.backend.compiled import CompiledBackward
from retrograd.backend.settings import Settings


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

    def inner_compile(graph_module, inputs, **how):
        if not how.get("is_backward"):
            return plain(graph_module, inputs, **how)
        try:
            return compile_backward(graph_module, inputs, names, settings)
        except Exception as error:  # whatever it is, Inductor can
            if settings.require_full:
                raise
            messages.once.warn(f"this backward runs through Inductor: {error}")
            messages.log.debug("falls back", exc_info=True)
            return _boxed(plain(graph_module, inputs, **how))

    ours = f"{tag} retrograd {native.load().version().decode()} {settings.tag()}"
    with torch.compiler.config.patch(cache_key_tag=ours):
        return compile_fx(
            module, example_inputs, inner_compile=inner_compile,
            config_patches=settings.inductor_patches(),
        )  # fmt: skip


backend.reset = messages.once.forget  # torch._dynamo.reset() calls it


def compile_backward(module, example_inputs, names, settings):
    """A CompiledBackward of the graph, which stays as it is. ExportError or native.Failure if there
    can be none."""
    start = time.monotonic()
    captured, device = arrived_backward(module, example_inputs, names)
    what = f"backward of {len(captured.outputs)} gradients"
    graph, constants = translate.translate(captured, "backward")
    program = programs.program_of(
        graph.SerializeToString(deterministic=True), device, settings, what
    )
    compiled = CompiledBackward(
        program, constants.values(), device, [i.dtype for i in captured.inputs], what
    )
    _keep_for_other_runs()
    messages.log.info(
        "%s: %d nodes, %d kernels and library calls, ready in %.2f s", what, len(graph.nodes),
        program.executable.describe()["kernels"], time.monotonic() - start,
    )  # fmt: skip
    return compiled


def _keep_for_other_runs():
    """Nothing of what autograd hands over is overwritten, so that a backward may run again
    (retain_graph=True), which AOTAutograd else refuses."""
    metadata = getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)
    if metadata is not None:
        metadata.bw_donated_idxs = []


def _boxed(compiled):
    """A function around Inductor's result, which is not saved under our tag."""

    def run(inputs):
        return compiled(inputs)

    run._boxed_call = True
    return run


