"""Rows of the table on the calls that PyTorch's own samples of its ops come down to.

Each op of OpInfo and its gradient is recorded under the decompositions of a capture; every call of
an op that has a row is translated, verified and evaluated in the dtypes of the sample. A call is
checked once a session: others with equal shapes, strides, dtypes and numbers are passed over.
"""

import op_calls
import op_info
import pytest
import single_op
import torch
from retrograd import aten_table, dtypes, errors
from torch.utils import _pytree as pytree

SAMPLES = {torch.float64: 6, torch.int64: 3, torch.bool: 2}  # of an op
# The schema holds attention's log-sum-exp in fp32: 2^-24 of scores of up to 200.
SAVED_IN_FP32 = 2e-5
SHORT_SERIES = 2e-6  # PyTorch's trigamma in fp64 is 5e-10 off; that of fp32 as it rounds
_checked = set()

# Forms of arguments that are refused, and a part of the reason given.
REFUSED = {
    "aten.addmm.default": "product of torch.int64 matrices",
    "aten.baddbmm.default": "product of torch.int64 matrices",
    "aten.bmm.default": "product of torch.int64 matrices",
    "aten.mm.default": "product of torch.int64 matrices",
    "aten.mv.default": "product of torch.int64 matrices",
    "aten.avg_pool2d.default": "an average of integers",
    "aten.avg_pool3d.default": "an average of integers",
    "aten.bitwise_and.Tensor": "bitwise operations on integers",
    "aten.bitwise_or.Tensor": "bitwise operations on integers",
    "aten.bitwise_xor.Tensor": "bitwise operations on integers",
    "aten._embedding_bag_backward.default": "scale_grad_by_freq",
    "aten._embedding_bag_dense_backward.default": "scale_grad_by_freq",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": "causal attention of",
    "aten.convolution.default": "convolution of torch.int64",
    "aten.index.Tensor": "shape depends on the data",
    "aten.index_put.default": "shape depends on the data",
    "aten.polygamma.default": "derivatives of digamma behind the first",
    "aten.pow.Tensor_Tensor": "an integer to the power",
}

# Ops of the gradients of OpInfo's ops that have no row.
WITHOUT_ROW = {
    "solvers and decompositions": (
        "linalg_solve_triangular.default", "linalg_lu_solve.default", "lu_unpack.default",
        "linalg_pinv.atol_rtol_tensor", "ormqr.default", "triangular_solve.default",
        "cholesky_solve.default", "linalg_matrix_exp.default",
    ),
    "complex numbers": (
        "view_as_real.default", "view_as_complex.default", "_fft_r2c.default", "_fft_c2c.default",
        "_conj.default",
    ),
    "functions that the schema lacks": (
        "i0.default", "special_i0e.default", "special_i1.default", "special_i1e.default",
    ),
    "scattered products": ("scatter_reduce.two", "index_reduce.default"),
    "recursions along a sequence": ("_ctc_loss_backward.default", "_ctc_loss_backward.Tensor"),
    "shapes or branches that depend on the data": ("_local_scalar_dense.default", "_unique.default"),
    "rare in models": (
        "_segment_reduce_backward.default",
        "multi_margin_loss_backward.default", "multilabel_margin_loss_backward.default",
        "_pdist_backward.default",
    ),
}  # fmt: skip
_WITHOUT_ROW = {f"aten.{name}" for names in WITHOUT_ROW.values() for name in names}


def _foreign(call):
    """Whether the call holds a type that the schema lacks: complex numbers, 16-bit integers."""
    leaves = pytree.tree_leaves((call.args, call.kwargs, call.results))
    kinds = {v.dtype if isinstance(v, torch.Tensor) else v for v in leaves if _typed(v)}
    return any(kind not in dtypes._NUMBERS for kind in kinds)


def _typed(value):
    return isinstance(value, (torch.Tensor, torch.dtype))


def _check(call):
    if call.key in _checked:
        return
    try:
        tolerance = SAVED_IN_FP32 if "scaled_dot_product" in call.name else None
        tolerance = SHORT_SERIES if "polygamma" in call.name else tolerance
        single_op.check(call.name, call.args, call.kwargs, call.results, tolerance)
    except errors.ExportError as refusal:
        reason = "schema does not have" if _foreign(call) else REFUSED.get(call.name)
        if reason is None or reason not in str(refusal):
            raise
    _checked.add(call.key)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", op_info.OPS)
def test_the_calls_of_an_op_and_its_gradient(name):
    info = op_info.OPS[name]
    torch.manual_seed(0)
    for dtype, count in SAMPLES.items():
        for args, kwargs in op_info.samples(info, dtype, count):
            for call in op_calls.record(info.op, args, kwargs):
                if call.name in aten_table.TABLE:
                    _check(call)
                else:
                    assert not call.backward or call.name in _WITHOUT_ROW, call.name


def test_an_op_is_not_without_a_row_and_in_the_table():
    assert not _WITHOUT_ROW & set(aten_table.TABLE)
