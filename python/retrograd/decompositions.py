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


def table(composites):
    """{op: decomposition}. "decomposed": Inductor's own table; "whole": the same without the
    backward ops that the op table has as composites."""
    if composites not in ("decomposed", "whole"):
        raise ExportError(f'composites must be "decomposed" or "whole", not {composites!r}')
    decompositions = dict(select_decomp_table())
    if composites == "whole":
        for op in list(decompositions):
            if op.name().split("::")[-1].split(".")[0] in WHOLE:
                del decompositions[op]
    return decompositions
