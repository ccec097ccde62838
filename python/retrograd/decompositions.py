"""The decomposition tables of a capture."""

from torch._inductor.decomposition import select_decomp_table

from retrograd.errors import ExportError

# Backward ops that have a composite of their own, and the forward ops that must stay whole with
# them: a decomposed forward saves statistics in another dtype than the whole backward reads.
WHOLE_BACKWARD = (
    "gelu_backward", "silu_backward", "threshold_backward", "tanh_backward", "sigmoid_backward",
    "_softmax_backward_data", "_log_softmax_backward_data", "_fused_rms_norm_backward",
    "native_layer_norm_backward",
)  # fmt: skip
WHOLE_FORWARD = (
    "gelu", "silu", "tanh", "sigmoid", "_softmax", "_log_softmax", "_fused_rms_norm",
    "native_layer_norm",
)  # fmt: skip


def table(composites):
    """{op: decomposition}. "decomposed": Inductor's own table; "whole": the same without the
    backward ops that the op table has as composites."""
    if composites not in ("decomposed", "whole"):
        raise ExportError(f'composites must be "decomposed" or "whole", not {composites!r}')
    decompositions = dict(select_decomp_table())
    if composites == "whole":
        whole = {*WHOLE_BACKWARD, *WHOLE_FORWARD}
        for op in list(decompositions):
            if op.name().split("::")[-1].split(".")[0] in whole:
                del decompositions[op]
    return decompositions
