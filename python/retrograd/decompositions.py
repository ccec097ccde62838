"""The decomposition tables of a capture."""

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


def of_compiler():
    """{op: decomposition}: Inductor's own table without the ops that are views."""
    return {op: by for op, by in select_decomp_table().items() if _name(op) not in OF_VIEWS}


def table(composites):
    """{op: decomposition}. "decomposed": of_compiler(); "whole": the same without the backward ops
    that the op table has as composites."""
    if composites not in ("decomposed", "whole"):
        raise ExportError(f'composites must be "decomposed" or "whole", not {composites!r}')
    decompositions = of_compiler()
    if composites == "whole":
        return {op: by for op, by in decompositions.items() if _name(op) not in WHOLE}
    return decompositions
