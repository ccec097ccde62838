"""How a compiled function calls its forward, seen in one of its calls: a ForwardPlan for the next.

PyTorch makes of a compiled forward and backward an autograd.Function and wraps it. Where the wrapping
changes nothing that an ordinary call sees, a ForwardPlan (direct_forward.h) calls the forward itself.
"""

import threading

import torch

_MOST_LOOKS = 3


class ForwardLearner:
    """Looks on in calls of a compiled function. extension: the node's module."""

    def __init__(self, extension):
        self._extension = extension
        self._looks = 0
        self._lock = threading.Lock()

    def call(self, function, args, autograd_function):
        """(results of function(*args), a ForwardPlan or None).

        autograd_function: the torch.autograd.Function that made earlier results.
        """
        if self._looks == _MOST_LOOKS or not _changes_nothing(autograd_function):
            return function(*args), None
        with self._lock:
            self._looks += 1
            with _Recorder(autograd_function) as recorder:
                results = function(*args)
        return results, self._plan(autograd_function, args, results, recorder)

    def _plan(self, function, args, results, recorder):
        seen = recorder.seen
        node = next((r.grad_fn for r in results if getattr(r, "grad_fn", None) is not None), None)
        if seen is None or node is None or getattr(node, "_forward_cls", None) is not function:
            return None
        outputs, metadata = seen.outputs, function.metadata
        edges = node.next_functions
        if not (
            _same_tensors(args, seen.arguments)
            and len(edges) == len(args)
            and all(_is_tensor(o) for o in outputs)
            and len(results) == metadata.num_forward_returns
            and _same_tensors(results, outputs[: len(results)])
            and all(r.grad_fn in (node, None) for r in results)
        ):
            return None
        checked, beside = (
            part.indices(len(outputs))[:2]
            for part in (
                metadata.tensors_saved_for_backwards_with_vc_check_slice,
                metadata.tensors_saved_for_backwards_no_vc_check_slice,
            )
        )
        return self._extension.ForwardPlan(
            forward=recorder.forward,
            backward=lambda *saved_and_tangents: _by_function(function, *saved_and_tangents),
            requires_grad=[a.requires_grad for a in args],
            has_gradient=[edge is not None for edge, _ in edges],
            written=list(metadata.mutated_graph_handled_indices_seen_by_autograd),
            differentiable=[r.grad_fn is node for r in results],
            num_outputs=len(outputs),
            checked=checked,
            beside=(beside[0], max(beside)),
        )


class _Seen:
    """One call of a forward: its arguments and what it returned."""

    def __init__(self, arguments, outputs):
        self.arguments, self.outputs = arguments, outputs


class _Recorder:
    """While it is entered, the forward of an autograd.Function runs through it."""

    def __init__(self, function):
        self._function, self._thread = function, threading.get_ident()
        self.forward = function.compiled_fw
        self.seen = None

    def __enter__(self):
        def record(arguments):
            if threading.get_ident() != self._thread:
                return self.forward(arguments)
            given = list(arguments)
            outputs = self.forward(arguments)
            if type(outputs) in (list, tuple):
                self.seen = _Seen(given, list(outputs))
            return outputs

        record._boxed_call = True
        self._function.compiled_fw = record
        return self

    def __exit__(self, *_):
        self._function.compiled_fw = self.forward


class _Context:
    """What the backward of a compiled autograd.Function asks of its context."""

    symints = opaque_objects = ()

    def __init__(self, saved, beside):
        self.saved_tensors, self._tensors_no_vc_check = tuple(saved), beside

    def maybe_clear_saved_tensors(self):
        """The node that holds them lets go of them."""


def _by_function(function, saved, beside, tangents):
    """The gradients of a compiled function's arguments, in PyTorch's way."""
    return list(function.backward(_Context(saved, beside), *tangents))


def _changes_nothing(function):
    """Whether the function and its wrappers only hand tensors on: nothing is an alias of anything,
    no argument is written behind the forward, and there are no sizes, tokens or random states."""
    metadata = getattr(function, "metadata", None)
    return (
        metadata is not None
        and getattr(function.compiled_fw, "_boxed_call", False)
        and function.maybe_subclass_metadata is None
        and function.num_symints_saved_for_bw == 0
        and metadata.num_mutated_inp_runtime_indices == 0
        and metadata.num_outputs_aliased == 0
        and metadata.num_intermediate_bases == 0
        and metadata.num_graphsafe_rng_states == 0
        and metadata.num_opaque_objects_saved_for_bw in (0, None)
        and metadata.grad_enabled_mutation is None
        and not metadata.tokens
        and not metadata.is_rng_op_functionalized
        and not metadata.dynamic_outputs
        and not metadata.dynamic_saved_tensors_idxs
    )


def _is_tensor(value):
    return type(value) in (torch.Tensor, torch.nn.Parameter)


def _same_tensors(some, others):
    """Whether they are the same elements, in the same order."""
    return len(some) == len(others) and all(
        _is_tensor(a)
        and _is_tensor(b)
        and (a.data_ptr(), a.shape, a.stride(), a.dtype, a.device)
        == (b.data_ptr(), b.shape, b.stride(), b.dtype, b.device)
        for a, b in zip(some, others, strict=True)
    )
