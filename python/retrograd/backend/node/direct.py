"""Compiled functions whose backward is one node of autograd's in C++.

Autograd visits a node for each parameter, at 2 to 3 us each, and calls a compiled backward through
Python. A DirectNode (direct_node.h) takes the place of the compiled function's node: it runs the
backward without Python and puts the gradients of ordinary parameters into their `.grad` itself.
What asks for more of autograd (hooks, a reducer, gradients asked for by name, a graph that is kept)
gets it: that parameter, or that call, takes autograd's way.
"""

import torch

from retrograd.backend import messages
from retrograd.backend.node import extension
from retrograd.backend.node.learning import Learner


class DirectGradients:
    """Calls a compiled function of flat arguments, and gives its results a DirectNode."""

    def __init__(self, function):
        self._function = function
        self._binding = None
        self._reasons = set()
        extension.start()

    def __call__(self, *args):
        results = self._function(*args)
        module = extension.loaded()
        if module is not None and torch.is_grad_enabled():
            self._attach(module, results)
        return results

    def _attach(self, module, results):
        if self._binding is None:
            self._binding = module.Binding(Learner(module))
        if not self._binding.hopeful:
            return
        if torch._dynamo.config.compiled_autograd:
            reason = "compiled autograd traces its graph"
        else:
            reason = module.attach(self._binding, results)
        if reason and reason not in self._reasons:
            self._reasons.add(reason)
            messages.log.info("a compiled function keeps autograd's path: %s", reason)
