"""Backwards some of whose tangents nobody computes.

A model returns its logits beside its loss, and only the loss is used: autograd then has no tangent
for the logits, and AOTAutograd fills one with zeros, which the backward reads and adds. A program
that knows of the zeros needs neither.
"""

import copy
import dataclasses
import itertools

from retrograd import dtypes, native, schema
from retrograd.backend import messages
from retrograd.sizes import table

# What a program of its own must save of the predicted time: it takes seconds to make.
LEAST_SAVING = 0.005


def with_zeros(graph, inputs):
    """The bytes of the graph in which these inputs, by number, are constants of zero."""
    message = schema.Graph.FromString(graph)
    owners = [owner for owner, node in enumerate(message.nodes) if node.op == "input"]
    _move_sizes(message, {owners[number] for number in inputs})
    for number in inputs:
        node, result = message.nodes[owners[number]], message.nodes[owners[number]].results[0]
        node.op = "full"
        node.ClearField("input")
        attrs = [
            schema.Attr(name="dtype", s=dtypes.name_of(dtypes.torch_dtype(result.dtype))),
            schema.Attr(name="shape", ints={"values": result.dims}),
            schema.Attr(name="value", f=0.0),
        ]
        node.attrs.extend(attrs)
    return message.SerializeToString(deterministic=True)


def _move_sizes(message, owners):
    """The sizes of these nodes, which are inputs, become those of constants: a constant has no
    strides, and its shape is an attribute, too."""
    shape = ("dtype", "shape", "value").index("shape")  # of the attributes, in the order of names
    places = []
    for owner, those in itertools.groupby(message.sizes.places, key=_owner_of):
        those = list(those)
        if owner in owners:
            dims = [place for place in those if place.field == table.DIM]
            attrs = [copy.deepcopy(place) for place in dims]
            for place in attrs:
                place.field, place.part = table.ATTR, shape
            those = dims + attrs
        places += those
    places = [copy.deepcopy(place) for place in places]
    del message.sizes.places[:]
    message.sizes.places.extend(places)


def _owner_of(place):
    """The node of a place; None for an output's."""
    return None if place.field == table.OUTPUT_STRIDE else place.owner


def pays(compiled, inputs):
    """Whether a program without these tangents is predicted to be faster by enough."""
    recipe = compiled.recipe
    settings = recipe.settings.of_executables()
    before, after = (
        native.Plan(native.Graph.deserialize(graph), settings=settings).predicted_ns
        for graph in (bytes(recipe.graph), with_zeros(bytes(recipe.graph), inputs))
    )
    messages.log.info(
        "%s: %d tangents are absent; without them it is predicted to take %.3f of the time",
        compiled.what, len(inputs), after / before,
    )  # fmt: skip
    return after < (1 - LEAST_SAVING) * before


def without(compiled, inputs):
    """The CompiledBackward that is not given these tangents. native.Failure if there can be none.

    Of a graph with symbols, Translation.without is the same for all sizes.
    """
    recipe = compiled.recipe
    gone = set(inputs)
    made = dataclasses.replace(
        recipe,
        graph=with_zeros(bytes(recipe.graph), inputs),
        dtypes=[dtype for i, dtype in enumerate(recipe.dtypes) if i not in gone],
        what=f"{recipe.what}, {len(inputs)} tangents absent",
        unread=recipe.unread_without(gone),
    )
    return type(compiled)(made, compiled.forward_graphs)
