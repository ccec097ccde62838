"""Retrograd for Python.

export_backward writes a PyTorch model's backward graph to a file:

    paths = retrograd.export_backward(model, (x, y), path="model.bwd.pb", bundle=True)

torch.compile(model, backend="retrograd") trains with it (retrograd.backend), and explain tells before
what it would do:

    print(retrograd.explain(model, (x,), loss_fn=loss, spec="h200"))

and profile what it took:

    print(retrograd.profile(step))

capture_step makes one CUDA graph of a whole training step:

    step = retrograd.capture_step(step)

retrograd.native plans, compiles and runs graphs; it needs no PyTorch.
"""

import importlib

_PLACES = {
    "ExportError": "retrograd.errors",
    "capture_step": "retrograd.backend.capture_step",
    "explain": "retrograd.backend.explain",
    "export_backward": "retrograd.export",
    "profile": "retrograd.backend.profile",
}

__all__ = sorted(_PLACES)


def __getattr__(name):
    """Loads the exporter, and PyTorch with it, when it is first asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module 'retrograd' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
