"""Compiled functions whose backward is one node of autograd's in C++.

Autograd visits a node for each parameter, at 2 to 3 us each, and calls a compiled backward through
Python. A DirectNode (direct_node.h) takes the place of the compiled function's node: it runs the
backward without Python and puts the gradients of ordinary parameters into their `.grad` itself.
What asks for more of autograd (hooks, a reducer, gradients asked for by name, a graph that is kept)
gets it: that parameter, or that call, takes autograd's way.

Once backwards run so, the forward is called without the autograd.Function around it, too
(direct_forward.h); a call under which something looks on keeps the function.
"""

import torch

from retrograd.backend import messages
from retrograd.backend.node import extension
from retrograd.backend.node.forward_learning import ForwardLearner
from retrograd.backend.node.learning import Learner


class DirectGradients:
    """Calls a compiled function of flat arguments, and gives its results a DirectNode."""

    def __init__(self, function, direct_forward, bound):
        """bound: the kept.Bound of plans, of a function with dynamic sizes."""
        self._function = function
        self._binding = None
        self._forward = None  # a ForwardPlan
        self._forward_learner = None
        self._direct_forward, self._bound = direct_forward, bound
        self._autograd_function = None  # that made the results of an earlier call
        self._reasons = set()
        extension.start()

    def __call__(self, *args):
        module = extension.loaded()
        if module is None or not torch.is_grad_enabled():
            return self._function(*args)
        if self._forward is not None and not torch._dynamo.config.compiled_autograd:
            results = module.call_forward(self._binding, self._forward, args)
            if results is not None:
                return results
        results = self._called(module, args)
        self._attach(module, results)
        return results

    def _called(self, module, args):
        """The results of the function, which may be looked at while it runs."""
        learns = (
            self._direct_forward
            and self._forward is None
            and self._autograd_function is not None
            and self._binding.plans > 0  # backwards run by the node
        )
        if not learns:
            return self._function(*args)
        if self._forward_learner is None:
            self._forward_learner = ForwardLearner(module)
        results, found = self._forward_learner.call(self._function, args, self._autograd_function)
        self._forward = found or self._forward  # another thread's
        return results

    def _attach(self, module, results):
        if self._binding is None:
            self._binding = module.Binding(
                Learner(module), self._bound.most, self._bound.most_bytes
            )
        if not self._binding.hopeful:
            return
        if torch._dynamo.config.compiled_autograd:
            reason = "compiled autograd traces its graph"
        else:
            if self._autograd_function is None:
                self._autograd_function = _function_of(results)
            reason = module.attach(self._binding, results)
        if reason and reason not in self._reasons:
            self._reasons.add(reason)
            messages.log.info("a compiled function keeps autograd's path: %s", reason)


def _function_of(results):
    """The torch.autograd.Function that made the results, or None."""
    nodes = (getattr(result, "grad_fn", None) for result in results)
    return next((f for f in (getattr(node, "_forward_cls", None) for node in nodes) if f), None)
