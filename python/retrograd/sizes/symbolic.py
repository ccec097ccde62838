"""What the fx nodes of a graph at its hints know of symbols, in their meta."""

from torch.utils import _pytree as pytree

SHAPES = "retrograd_shapes"  # the shapes of a node's results, with Sizes
LYING = "retrograd_lying"  # a Lying
NUMBERS = "retrograd_numbers"  # leaf of (args, kwargs) -> Size or Quotient


class Lying:
    """How a node's one result lies in memory, with Sizes.

    value: its fake tensor at the hints; another one in the node's meta lies otherwise. symbols:
    TorchSymbols. traced: the tensor with PyTorch's symbols. strides: if not the traced tensor's.
    """

    def __init__(self, value, symbols, traced, strides=None):
        self.value, self.table = value, symbols.table
        self._size_of, self._traced, self._strides = symbols.size_of, traced, strides

    @property
    def shape(self):
        return tuple(map(self._size_of, self._traced.shape))

    def stride(self, axis=None):
        if self._strides is None:
            self._strides = tuple(map(self._size_of, self._traced.stride()))
        return self._strides if axis is None else self._strides[axis]

    def storage_offset(self):
        return self._size_of(self._traced.storage_offset())


def with_sizes(node):
    """(args, kwargs) of an fx node, with Sizes in place of numbers that follow from symbols."""
    numbers = node.meta.get(NUMBERS)
    if not numbers:
        return node.args, node.kwargs
    leaves, tree = pytree.tree_flatten((node.args, node.kwargs))
    for place, size in numbers.items():
        leaves[place] = size
    return pytree.tree_unflatten(leaves, tree)
