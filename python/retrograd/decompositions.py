"""The decomposition tables of a capture."""

import functools

import torch
from torch._inductor import lowering
from torch._inductor.decomposition import select_decomp_table

from retrograd.errors import ExportError

# Backward ops that have a composite of their own, and the forward op that stays whole with its
# backward: decomposed on a CPU in bf16, it saves statistics that the whole backward refuses.
WHOLE = (
    "gelu_backward", "silu_backward", "threshold_backward", "tanh_backward", "sigmoid_backward",
    "_softmax_backward_data", "_log_softmax_backward_data", "_fused_rms_norm_backward",
    "native_layer_norm_backward", "native_layer_norm",
)  # fmt: skip

# Backward ops whose decomposition gathers at indices where the op table has views.
OF_VIEWS = tuple(f"reflection_pad{dims}d_backward" for dims in (1, 2, 3))


def _name(op):
    return op.name().split("::")[-1].split(".")[0]


@functools.cache
def _call_whole(op):
    """Lets Inductor call the op's kernel where it meets it whole: of a backward that runs through
    Inductor. It refuses what it has a decomposition of. As of other ops' backwards without a
    lowering, the operands are contiguous: not every kernel heeds strides."""
    lowering.make_fallback(op, lowering.require_contiguous, override_decomp=True)


def _eye(rows, columns=None, *, dtype=None, device=None, layout=None, pin_memory=None, **_):
    """PyTorch's own decomposition counts rows in the smallest integer type that holds the extent. For
    256 or more that is uint16, which has no kernels: such a graph can be compiled, but not run op by
    op. A layout and pinned memory are no matter of a traced graph."""
    del layout, pin_memory
    place = torch.arange(rows, device=device)[:, None]
    other = torch.arange(rows if columns is None else columns, device=device)
    return (place == other).to(dtype or torch.get_default_dtype())


def of_compiler():
    """{op: decomposition}: Inductor's own table without the ops that are views, and with an identity
    matrix whose graph runs op by op, too."""
    decompositions = dict(select_decomp_table())
    decompositions |= {torch.ops.aten.eye.default: _eye, torch.ops.aten.eye.m: _eye}
    for op in [op for op in decompositions if _name(op) in OF_VIEWS]:
        del decompositions[op]
        _call_whole(op)
    return decompositions


def table(composites):
    """{op: decomposition}. "decomposed": of_compiler(); "whole": the same without the backward ops
    that the op table has as composites."""
    if composites not in ("decomposed", "whole"):
        raise ExportError(f'composites must be "decomposed" or "whole", not {composites!r}')
    decompositions = of_compiler()
    if composites == "whole":
        return {op: by for op, by in decompositions.items() if _name(op) not in WHOLE}
    return decompositions
