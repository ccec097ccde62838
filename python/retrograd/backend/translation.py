"""One translation of a backward whose sizes are symbols, for all sizes that it was made for."""

import dataclasses
import hashlib

import torch

from retrograd import native
from retrograd.backend import absent, messages, programs
from retrograd.backend.compiled import same_strides


class Translation:
    """A Recipe of each set of sizes, from the graph that was translated once."""

    def __init__(self, recipe, sources):
        """recipe: its graph has symbols. sources: torch_symbols.Sources of all of them."""
        self._recipe, self._sources = recipe, sources
        self._graph = native.Graph.deserialize(recipe.graph)
        self._digest = hashlib.sha256(recipe.graph).digest()
        self._without = {}  # by inputs

    def without(self, inputs):
        """The Translation in which these inputs, numbers of tensors, are zeros that nobody gives. It
        is bound to the same values; its recipes have them as `absent`. native.Failure if there can
        be none."""
        if inputs not in self._without:
            recipe = self._recipe
            given = [i for i in range(len(recipe.dtypes)) if i not in inputs]
            made = dataclasses.replace(
                recipe,
                graph=absent.with_zeros(recipe.graph, inputs),
                dtypes=[recipe.dtypes[i] for i in given],
                what=f"{recipe.what}, {len(inputs)} tangents absent",
                absent=inputs,
                unread=recipe.unread_without(inputs),
            )
            self._without[inputs] = Translation(made, self._sources)
        return self._without[inputs]

    def bind(self, values):
        """The Recipe for the sizes of the values, integers and tensors, or None: the graph would be another
        one at these sizes, or a tensor lies otherwise than the symbols say."""
        sizes = {source.symbol: source.value_in(values) for source in self._sources}
        bound = self._graph
        if sizes:
            try:
                bound = bound.bind(sizes)
            except native.Failure as failure:
                messages.log.info("%s at %s: %s", self._recipe.what, sizes, failure)
                return None
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        tensors = [t for i, t in enumerate(tensors) if i not in self._recipe.absent]
        for tensor, expected in zip(tensors, bound.inputs):  # constants of the graph lie behind
            strides = tensor.stride()
            if tensor.shape != expected.shape or not (
                strides == expected.strides
                or same_strides(expected.shape, strides, expected.strides)
            ):
                messages.log.info(
                    "%s at %s: %s has the strides %s, not %s", self._recipe.what, sizes,
                    expected.name, strides, expected.strides,
                )  # fmt: skip
                return None
        identity = self._digest + repr(sorted(sizes.items())).encode()
        return dataclasses.replace(self._recipe, graph=programs.BoundGraph(bound, identity))
