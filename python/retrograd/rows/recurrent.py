"""Rows of the table for recurrent cells, each of which is one op on CUDA, and for their backwards.

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


def _with_biases(f, gates, bias):
    return gates if bias is None else f.add(gates, f.b.cast(bias, f.dtype))


@row("aten._thnn_fused_lstm_cell.default")
def lstm_cell(call, of_input, of_state, before, input_bias=None, state_bias=None):
    """(the output, the state, the workspace) of the gates' parts, [B, 4 H], and the state before."""
    b, dtype = call.b, dtypes.compute_dtype(of_input.dtype)
    f = Formula(b, dtype)
    total = f.add(b.cast(of_input, dtype), b.cast(of_state, dtype))
    total = _with_biases(f, _with_biases(f, total, input_bias), state_bias)
    i, forget, cell, o = _parts(b, total, 4, dtype)
    i, forget, cell, o = f.sigmoid(i), f.sigmoid(forget), f.tanh(cell), f.sigmoid(o)
    after = f.add(f.mul(forget, b.cast(before, dtype)), f.mul(i, cell))
    out = f.mul(o, f.tanh(after))
    workspace = b.cast(b.cat([i, forget, cell, o], of_input.rank - 1), of_input.dtype)
    return b.cast(out, before.dtype), b.cast(after, before.dtype), workspace


@row("aten._thnn_fused_gru_cell.default")
def gru_cell(call, of_input, of_state, before, input_bias=None, state_bias=None):
    """(the state, the workspace) of the gates' parts, [B, 3 H], and the state before."""
    b, dtype = call.b, dtypes.compute_dtype(of_input.dtype)
    f, old = Formula(b, dtype), b.cast(before, dtype)
    given = _parts(b, _with_biases(f, b.cast(of_input, dtype), input_bias), 3, dtype)
    kept = _parts(b, _with_biases(f, b.cast(of_state, dtype), state_bias), 3, dtype)
    reset, update = (f.sigmoid(f.add(x, h)) for x, h in zip(given[:2], kept[:2]))
    new = f.tanh(f.add(given[2], f.mul(reset, kept[2])))
    state = f.add(new, f.mul(update, f.sub(old, new)))
    parts = [reset, update, new, old, kept[2]]
    workspace = b.cast(b.cat(parts, of_input.rank - 1), of_input.dtype)
    return b.cast(state, before.dtype), workspace


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
