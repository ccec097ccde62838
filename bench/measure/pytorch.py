"""PyTorch's side: the backward of a model as it is run by its users, in each mode."""

import functools
import time

import torch
import zoo
from measure import watch
from measure.step import Step

# Options of Inductor by mode; None: not compiled at all.
MODES = {
    "eager": None,
    "inductor": {},
    "mix_order_reduction_off": {"triton.mix_order_reduction": False},
    "reduce_overhead": {"triton.cudagraphs": True},
}


def measure(name, device, mode, repeat, from_before):
    """One mode's figures. from_before: bytes of the backward's inputs that are there before the
    forward (parameters, the batch), which count as its inputs on both sides."""
    torch._dynamo.reset()
    model, args, kwargs = zoo.make(name, device)
    seen = []
    step = _step(model, args, kwargs, zoo.autocasts(name, device), MODES[mode], seen)
    begin = time.perf_counter()
    step.forward()
    step.backward()
    watch.synchronize()
    result = {"first_step_s": time.perf_counter() - begin}
    for _ in range(3):
        step.forward()
        step.backward()
    result["gpu_ms"] = watch.gpu_ms(step.forward, step.backward, repeat)
    result["wall_ms"] = watch.wall_ms(step.forward, step.backward, repeat)
    result["kernels"] = watch.kernels(step.forward, step.backward)
    # A private pool of CUDA graphs holds everything all the time.
    if device == "cuda" and mode != "reduce_overhead":
        result["peak_bytes"] = _peak_bytes(step) + from_before
    if MODES[mode] is not None:
        result["saved"] = seen[-1] if seen else None
    step.clear()
    del model, step
    torch._dynamo.reset()
    if device == "cuda":
        torch.cuda.empty_cache()
    return result


def _step(model, args, kwargs, autocasts, options, seen):
    """A step of the model as it is, or with Inductor's options."""
    call = model
    if options is not None:
        call = torch.compile(model, backend=functools.partial(inductor, options, seen))
    graphs = bool(options and options.get("triton.cudagraphs"))
    return Step(model, args, kwargs, autocasts, call, graphs)


def inductor(options, seen, module, example_inputs):
    """torch.compile's own backend, with an eye on what each backward is given."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    inner = config.patch(options)(compile_fx_inner) if options else compile_fx_inner

    def watched(graph_module, inputs, **kwargs):
        if kwargs.get("is_backward"):
            seen.append(inputs_of(graph_module))
        return inner(graph_module, inputs, **kwargs)

    return compile_fx(module, example_inputs, inner_compile=watched, config_patches=options or None)


def inputs_of(module):
    """What a backward graph is given: bytes of saved tensors and parameters, and of each a line."""
    lines, total = [], 0
    for node in module.graph.nodes:
        if node.op != "placeholder" or str(node.target).startswith("tangents_"):
            continue
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            lines.append(f"{type(value).__name__}")
            continue
        total += value.numel() * value.dtype.itemsize
        lines.append(f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}")
    return {"bytes": total, "tensors": len(lines), "lines": sorted(lines)}


def _peak_bytes(step):
    """The most that the allocator handed out during the backward, less what was there before the
    forward."""
    step.clear()
    watch.synchronize()
    before = torch.cuda.memory_allocated()
    step.forward()
    watch.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step.backward()
    watch.synchronize()
    return torch.cuda.max_memory_allocated() - before
