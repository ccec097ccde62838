"""Gradients written where the trainer wants them: one edge of autograd's for all parameters.

Autograd visits a node for each parameter, at 3 us or more each. Here the compiled function hangs in the
graph by one node, which runs the backward and puts the parameters' gradients into their `.grad`
itself. What autograd would do for a parameter besides (hooks, a reducer of DistributedDataParallel)
it does not do: such calls take the ordinary path.
"""

import torch

from retrograd.backend import messages


def _unsuited(leaves):
    """Why the parameters need autograd's own path in this call; "" if they do not."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "torch.distributed is initialised: a reducer may wait for each gradient"
    if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in leaves):
        return "a parameter has a hook"
    if torch.is_anomaly_enabled():
        return "anomaly mode is on"
    return ""


class DirectGradients:
    """Calls a compiled function of flat arguments with its parameters off autograd's graph."""

    def __init__(self, function):
        self._function = function
        self._anchor = torch.zeros((), requires_grad=True)  # so that the backward runs
        self._reasons = set()

    def __call__(self, *args):
        leaves = [a for a in args if isinstance(a, torch.nn.Parameter) and a.requires_grad]
        if not torch.is_grad_enabled() or not leaves:
            return self._function(*args)
        reason = _unsuited(leaves)
        if reason:
            self._tell(reason)
            return self._function(*args)
        places = [
            i
            for i, a in enumerate(args)
            if isinstance(a, torch.Tensor)
            and a.requires_grad
            and not isinstance(a, torch.nn.Parameter)
        ]
        return _Direct.apply(self, args, places, self._anchor, *(args[i] for i in places))

    def _tell(self, reason):
        if reason not in self._reasons:
            self._reasons.add(reason)
            messages.log.info("gradients take autograd's own path: %s", reason)


class _Direct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, direct, args, places, anchor, *others):
        given = list(args)
        stand_ins = [other.detach().requires_grad_() for other in others]
        for place, stand_in in zip(places, stand_ins, strict=True):
            given[place] = stand_in
        with torch.enable_grad():
            results = direct._function(*given)
        tensors = [r for r in results if isinstance(r, torch.Tensor)]
        first = next((t for t in tensors if t.grad_fn is not None), None)
        node = None if first is None else first.grad_fn
        # The edge keeps the node alive; the results that lead to it go.
        ctx.edge = None if first is None else torch.autograd.graph.get_gradient_edge(first)
        ctx.others = {id(s): i for i, s in enumerate(stand_ins)}
        ctx.stand_ins = stand_ins  # alive, so that their ids are theirs
        ctx.places = [t.output_nr if t.grad_fn is node and node is not None else -1 for t in tensors]
        if any(t.grad_fn not in (None, node) for t in tensors):
            raise RuntimeError(
                "a result of the compiled function is a view of one of its inputs: leave the "
                "option direct_gradients out for this model"
            )
        detached = [r.detach() if isinstance(r, torch.Tensor) else r for r in results]
        ctx.mark_non_differentiable(
            *(d for d, r in zip(detached, results, strict=True)
              if isinstance(r, torch.Tensor) and not r.requires_grad)
        )  # fmt: skip
        return tuple(detached)

    @staticmethod
    def backward(ctx, *tangents):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "torch.compile with aot_autograd does not currently support double backward"
            )
        if ctx.edge is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time; specify retain_graph=True "
                "when calling .backward() the first time"
            )
        edge = ctx.edge  # alive to the end of this function
        node = edge.node
        given = [None] * len(node._input_metadata)
        tensors = [t for t in tangents if isinstance(t, torch.Tensor) or t is None]
        for place, tangent in zip(ctx.places, tensors, strict=True):
            if place >= 0:
                given[place] = tangent
        gradients = node.apply(*given)
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.edge = None
        own = [None] * len(ctx.stand_ins)
        direct = []
        for gradient, (towards, _) in zip(gradients, node.next_functions, strict=True):
            variable = getattr(towards, "variable", None)
            if gradient is None or variable is None:
                continue
            if id(variable) in ctx.others:
                own[ctx.others[id(variable)]] = gradient
            else:
                direct.append((variable, gradient))
        _accumulate(direct)
        return (None, None, None, None, *own)


def _accumulate(pairs):
    """Puts or adds each gradient into its parameter's `.grad`."""
    late = [p for p, _ in pairs if p._backward_hooks or p._post_accumulate_grad_hooks]
    if late:
        raise RuntimeError(
            "a hook was set on a parameter between forward and backward: set it before the forward, "
            "or leave the option direct_gradients out"
        )
    there = [(p.grad, g) for p, g in pairs if p.grad is not None]
    if there:
        sums, terms = zip(*there, strict=True)
        torch._foreach_add_(list(sums), list(terms))
    for parameter, gradient in pairs:
        if parameter.grad is None:
            parameter.grad = gradient
