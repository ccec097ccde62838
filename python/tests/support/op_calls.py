"""The ATen calls that an op and its backward come down to in a captured graph.

`record` runs a function of tensors and its gradient under AOTAutograd's functionalization and
Inductor's decompositions, with real values, and notes every call that is left, and those on the
way there that have a row.
"""

import dataclasses

import torch
from retrograd import aten_table, decompositions, translate  # noqa: F401  translate: all rows
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_DECOMPOSITIONS = decompositions.table("decomposed")


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of the ATen or prims op `name`; `backward`: made by the gradient."""

    name: str
    args: tuple
    kwargs: dict
    results: object
    backward: bool

    @property
    def key(self):
        """Equal for calls that differ in the values of their tensors alone."""
        return repr((self.name, *(_form(v) for v in (self.args, self.kwargs))))


def _form(value):
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), value.stride(), value.storage_offset())
    if isinstance(value, (list, tuple)):
        return [_form(v) for v in value]
    if isinstance(value, dict):
        return sorted((name, _form(v)) for name, v in value.items())
    return value


class _Recorder(TorchDispatchMode):
    """Notes the calls below functionalization. An op that has a row and a decomposition is noted
    and decomposed: captures with other composites, and later versions of PyTorch, may hold it."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.backward = False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if op is torch.ops.aten.copy_.default:
            return args[0]  # functionalization hands back what an argument was changed to
        decomposed = self._decompose(op, args, kwargs)
        if decomposed is not NotImplemented and str(op) not in aten_table.TABLE:
            return decomposed
        results = op(*args, **kwargs)
        if "empty" in str(op):
            results = torch.zeros_like(results)  # what it holds may be anything
        self.calls.append(Call(str(op), tuple(args), kwargs, results, self.backward))
        return results if decomposed is NotImplemented else decomposed

    def _decompose(self, op, args, kwargs):
        if op in _DECOMPOSITIONS:
            with self:
                result = _DECOMPOSITIONS[op](*args, **kwargs)
            if result is not NotImplemented:
                return result
        if op.namespace == "prims":
            return NotImplemented
        with self:
            return op.decompose(*args, **kwargs)


class _NoGradient(Exception):
    """No result of the function has a gradient."""


def record(function, args, kwargs):
    """The Calls of function(*args, **kwargs) and of the gradients of its results with respect to
    the tensors among the arguments that require one."""
    recorder = _Recorder()
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor)]
    variables = [n for n, i in enumerate(places) if leaves[i].requires_grad]

    def with_gradient(*tensors):
        def forward(*differentiated):
            values = list(leaves)
            for i, tensor in zip(places, tensors, strict=True):
                values[i] = tensor
            for n, variable in zip(variables, differentiated, strict=True):
                values[places[n]] = variable
            args, kwargs = pytree.tree_unflatten(values, spec)
            results = pytree.tree_leaves(function(*args, **kwargs))
            results = tuple(r for r in results if _differentiable(r))
            if not results or not variables:
                raise _NoGradient
            return results

        try:
            results, gradient = torch.func.vjp(forward, *(tensors[n] for n in variables))
            tangents = tuple(_tangent(r) for r in results)
            recorder.backward = True
            gradient(tangents)
        except _NoGradient:
            pass
        return ()

    tensors = [leaves[i].detach().clone() for i in places]
    with recorder, torch.no_grad():
        torch.func.functionalize(with_gradient)(*tensors)
    return recorder.calls


def _differentiable(value):
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _tangent(result):
    """Values that differ, made without a call that a graph could hold."""
    count = result.numel()
    return torch.linspace(-1.3, 1.7, count, dtype=result.dtype).reshape(result.shape)
