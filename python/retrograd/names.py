"""The names of the tensors that a call reaches: parameters, buffers and arguments."""

import inspect

import torch

from retrograd import schema


class TensorNames:
    """Parameters and buffers by their module path, arguments by their parameter's name.

    function: an nn.Module, or a function: then the modules and tensors that it closes over count
    too. A tensor is known by its identity; the first name found for it stays.
    """

    def __init__(self, function, args, kwargs):
        self._found = {}  # id(tensor) -> (tensor, name, kind)
        target = function
        if isinstance(function, torch.nn.Module):
            self._add_module(function)
            target = function.forward
        else:
            self.add_closed_over(function)
        for name, value in _bound(target, args, kwargs).items():
            self._add(name, value)

    def add_closed_over(self, function):
        """Adds what a function, or a bound method, carries with it."""
        code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
        for name, cell in zip(getattr(code, "co_freevars", ()), cells or ()):
            self._add(name, cell.cell_contents)
        self._add("self", getattr(function, "__self__", None))

    def of(self, tensor, default):
        """(name, schema kind) of a tensor; (default, SAVED) if it is unknown."""
        _, name, kind = self._found.get(id(tensor), (None, default, schema.SAVED))
        return name, kind

    def arguments(self):
        """{name: tensor} of what is neither a parameter nor a buffer."""
        found = self._found.values()
        return {name: tensor for tensor, name, kind in found if kind != schema.PARAMETER}

    def leaves(self):
        """The tensors that a backward gives a `grad`."""
        tensors = (tensor for tensor, _, _ in self._found.values())
        return [t for t in tensors if t.requires_grad and t.is_leaf]

    def _add(self, name, value):
        if isinstance(value, torch.Tensor):
            self._found.setdefault(id(value), (value, name, schema.SAVED))
        elif isinstance(value, torch.nn.Module):
            self._add_module(value)
        elif isinstance(value, dict):
            for key, item in value.items():
                self._add(str(key), item)
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                self._add(f"{name}.{i}", item)

    def _add_module(self, module):
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            self._found.setdefault(id(tensor), (tensor, name, schema.PARAMETER))


def _bound(function, args, kwargs):
    """{parameter's name: argument}; by position where the signature says nothing."""
    try:
        return inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {**{f"args.{i}": a for i, a in enumerate(args)}, **kwargs}
