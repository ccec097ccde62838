"""Plans: what would be run for a graph, and what it would take, without a device."""

import ctypes
import json

from retrograd.native import structs
from retrograd.native.library import Handle, load

_FORMATS = {"text": 1, "json": 2, "html": 3}


class Cancellation(Handle):
    """Ends the making of plans and executables early, from any thread, with RG_CANCELLED."""

    def __init__(self, library=None):
        loaded = load(library)
        super().__init__(loaded, loaded.made("cancellation_create"), "cancellation_destroy")

    def cancel(self):
        self.library.cancellation_cancel(self.handle)


def explained(library, function, handle, form):
    """What `rg_function` tells of the handle: "text", "html", or for "json" an object."""
    if form not in _FORMATS:
        raise ValueError(f"form {form!r}: must be one of {', '.join(_FORMATS)}")
    text = library.text(function, handle, _FORMATS[form])
    return json.loads(text) if form == "json" else text


def given_settings(settings):
    """Of a dict (docs/embedding.md) or None."""
    return json.dumps(settings).encode() if settings else None


class Plan(Handle):
    """A graph's plan for the GPU that `spec` names."""

    def __init__(self, graph, spec=None, max_memory_bytes=0, cancellation=None, settings=None):
        """spec: a device spec by name ("h200") or file; None: of the reference GPU. max_memory_bytes:
        of inputs, outputs and workspace together; 0: no ceiling."""
        options = structs.PlanOptions(
            spec=spec.encode() if spec else None,
            max_memory_bytes=max_memory_bytes,
            cancellation=cancellation.handle if cancellation else None,
            settings=given_settings(settings),
        )
        handle = graph.library.made("plan_create", graph.handle, ctypes.byref(options))
        super().__init__(graph.library, handle, "plan_destroy")

    def explain(self, form="text"):
        """What `fusion-explain plan` prints: "text", "html", or for "json" an object."""
        return explained(self.library, "plan_explain", self.handle, form)

    @property
    def predicted_ns(self):
        """Nanoseconds that one run is predicted to take."""
        return self._cost()[0]

    @property
    def num_kernels(self):
        """Kernels and library calls of one run."""
        return self._cost()[1]

    def _cost(self):
        ns, kernels = ctypes.c_double(), ctypes.c_int64()
        self.library.check(
            self.library.plan_cost(self.handle, ctypes.byref(ns), ctypes.byref(kernels))
        )
        return ns.value, kernels.value
