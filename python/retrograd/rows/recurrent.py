"""Rows of the table for the backwards of recurrent cells, which CUDA's forwards run as one op each.

A cell's workspace holds the activated gates side by side along the last axis.
"""

from retrograd import dtypes
from retrograd.aten_table import row
from retrograd.rows.math import Formula


def _parts(b, x, count, dtype):
    """x in so many equal parts along its last axis, as the dtype."""
    axis, width = x.rank - 1, x.shape[-1] // count
    return [b.cast(b.slice(x, axis, i * width, (i + 1) * width), dtype) for i in range(count)]


def _joined(b, parts, dtype):
    """[B, k H] of k [B, H], and what the bias's gradient is: [k H], the sum of its rounded rows."""
    gates = b.cat([b.cast(p, dtype) for p in parts], parts[0].rank - 1)
    total = b.reduce("sum", b.cast(gates, dtypes.compute_dtype(dtype)), [0])
    return gates, b.cast(total, dtype)


@row("aten._thnn_fused_lstm_cell_backward_impl.default")
def lstm_cell_backward(call, dh, dc, before, after, workspace, has_bias):
    """The gradients of the gates (input, forget, cell, output; [B, 4 H]), of the cell's state before
    the step [B, H] and of the bias. dh, dc: of the step's results, None for zeros."""
    b, dtype = call.b, dtypes.compute_dtype(workspace.dtype)
    f = Formula(b, dtype)
    i, forget, cell, o = _parts(b, workspace, 4, dtype)
    out = f.tanh(b.cast(after, dtype))
    dh = f.mul(0, out) if dh is None else b.cast(dh, dtype)
    through = f.mul(f.mul(dh, o), f.sub(1, f.mul(out, out)))
    state = through if dc is None else f.add(through, b.cast(dc, dtype))
    gates = (
        f.mul(f.mul(state, cell), _slope(f, i)),
        f.mul(f.mul(state, b.cast(before, dtype)), _slope(f, forget)),
        f.mul(f.mul(state, i), f.sub(1, f.mul(cell, cell))),
        f.mul(f.mul(dh, out), _slope(f, o)),
    )
    gates, bias = _joined(b, gates, workspace.dtype)
    return gates, b.cast(f.mul(state, forget), before.dtype), bias if has_bias else None


@row("aten._thnn_fused_gru_cell_backward.default")
def gru_cell_backward(call, dh, workspace, has_bias):
    """The gradients of the gates from the input and from the state (reset, update, new; [B, 3 H]
    each), of the state before the step [B, H] and of both biases."""
    b, dtype = call.b, dtypes.compute_dtype(workspace.dtype)
    f, grad = Formula(b, dtype), b.cast(dh, dtype)
    reset, update, new, before, hidden = _parts(b, workspace, 5, dtype)
    dnew = f.mul(f.mul(grad, f.sub(1, update)), f.sub(1, f.mul(new, new)))
    dupdate = f.mul(f.mul(grad, f.sub(before, new)), _slope(f, update))
    dreset = f.mul(f.mul(dnew, hidden), _slope(f, reset))
    gates, bias = _joined(b, (dreset, dupdate, dnew), workspace.dtype)
    of_state, state_bias = _joined(b, (dreset, dupdate, f.mul(dnew, reset)), workspace.dtype)
    dbefore = b.cast(f.mul(grad, update), dh.dtype)
    return gates, of_state, dbefore, *((bias, state_bias) if has_bias else (None, None))


def _slope(f, gate):
    """Of a sigmoid, by its result."""
    return f.mul(f.sub(1, gate), gate)
