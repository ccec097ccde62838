"""A whole training step as one CUDA graph: forward, backward and what else the step does."""

import contextlib
import gc

import torch

from retrograd.backend import programs
from retrograd.backend.node import extension

# Runs on one stream before a capture: the first compiles, the second finds autograd's node, the third
# is as all that follow.
LEAST_WARMUP = 3


def capture_step(step, *, warmup=LEAST_WARMUP, pool=None):
    """Captures `step`, a function without arguments, and returns a CapturedStep to be called in its
    place:

        step = retrograd.capture_step(step)
        for batch in batches:
            inputs.copy_(batch)
            loss = step()

    The step reads its inputs from tensors that stay where they are, and must not wait for the device
    (`.item()`, `.cpu()`, printing a tensor). It clears its gradients itself, best by
    `zero_grad(set_to_none=True)`. An optimizer must be capturable. warmup: ordinary runs before the
    capture, which train as any other: at least 3. pool: of memory, as torch.cuda.graph takes it.

    Without a CUDA device nothing is captured, and each call runs the step. ValueError for less
    warm-up, TypeError for what cannot be called; RuntimeError if the step cannot be captured: it can
    run on as an ordinary one.
    """
    if not callable(step):
        raise TypeError(
            f"capture_step needs a function that runs a step, not {type(step).__name__}"
        )
    if warmup < LEAST_WARMUP:
        raise ValueError(
            f"warmup is {warmup}: at least {LEAST_WARMUP} runs compile all that a step needs"
        )
    if not torch.cuda.is_available():
        _warm_up(step, warmup)
        return CapturedStep(step, None, None)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        _warm_up(step, warmup)
    torch.cuda.current_stream().wait_stream(stream)
    graph, pool = torch.cuda.CUDAGraph(), pool or torch.cuda.graph_pool_handle()
    try:
        # The stream of the warm-up: autograd's nodes remember theirs, and would wait for another.
        with _ends_when_it_fails(pool), _without_collecting():
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                result = step()
    except RuntimeError as error:
        raise RuntimeError(
            "the step cannot be captured in a CUDA graph. It must not wait for the device (.item(), "
            ".cpu(), printing a tensor), and its optimizer must be capturable"
        ) from error
    return CapturedStep(step, graph, result)


@contextlib.contextmanager
def _without_collecting():
    """Without the garbage collector: a cycle that it finds may hold a graph or a stream, and to let go
    of one ends a capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _ends_when_it_fails(pool):
    """Ends what a capture has begun also where it fails. PyTorch ends none of it there
    (pytorch/pytorch#171263): the current stream stays the capture's, the allocator goes on to allocate
    from the capture's pool, and the generator refuses each random number until the process ends."""
    device, stream = torch.cuda.current_device(), torch.cuda.current_stream()
    try:
        yield
    except RuntimeError:
        torch.cuda.set_stream(stream)
        with contextlib.suppress(RuntimeError):  # of a capture that has ended, or not begun
            torch._C._cuda_endAllocateToPool(device, pool)
            torch._C._cuda_releasePool(device, pool)
            # Steps that were captured before keep the state that this one leaves behind.
            generator = torch.cuda.default_generators[device]
            generator.graphsafe_set_state(generator.clone_state())
        raise


def _warm_up(step, runs):
    step()
    extension.loaded(wait=True)
    for _ in range(runs - 1):
        step()


class CapturedStep:
    """Runs a captured step. Its result is what the step returned when it was captured: tensors that
    each call writes again. `graph`: the torch.cuda.CUDAGraph, or None if nothing was captured."""

    def __init__(self, step, graph, result):
        self.graph = graph
        self._step, self._result = step, result
        self._programs = programs.alive()  # whose kernels the graph launches

    def __call__(self):
        if self.graph is None:
            return self._step()
        self.graph.replay()
        return self._result
