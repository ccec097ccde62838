"""Samples of the rows for recurrent cells, whose ops run on CUDA alone: the results are autograd's, of
the cells as PyTorch documents them, in float64."""

import torch


def _step_of_lstm(gates, before):
    i, forget, cell, o = gates.chunk(4, -1)
    i, forget, cell, o = i.sigmoid(), forget.sigmoid(), cell.tanh(), o.sigmoid()
    after = forget * before + i * cell
    return o * after.tanh(), after, torch.cat((i, forget, cell, o), -1)


def _step_of_gru(gates, of_state, before):
    reset, update, new = gates.chunk(3, -1)
    reset_too, update_too, hidden = of_state.chunk(3, -1)
    reset, update = (reset + reset_too).sigmoid(), (update + update_too).sigmoid()
    new = (new + reset * hidden).tanh()
    state = (1 - update) * new + update * before
    return state, torch.cat((reset, update, new, before, hidden), -1)


def _lstm(dtype, with_state, with_output, biased):
    gates, before = (torch.randn(3, n, dtype=torch.float64) for n in (20, 5))
    gates.requires_grad_(), before.requires_grad_()
    out, after, workspace = _step_of_lstm(gates, before)
    dh, dc = torch.randn_like(out), torch.randn_like(after)
    given = [(out, dh)] * with_output + [(after, dc)] * with_state
    outputs, gradients = zip(*given)
    dgates, dbefore = torch.autograd.grad(outputs, [gates, before], gradients)
    tensors = [t.detach().to(dtype) for t in (dh, dc, before, after, workspace)]
    tensors[0] = tensors[0] if with_output else None
    tensors[1] = tensors[1] if with_state else None
    results = dgates, dbefore, dgates.sum(0)
    results = [r.to(dtype) for r in results[: 2 + biased]] + [None] * (not biased)
    return (*tensors, biased), {}, results


def _gru(dtype, biased):
    gates, of_state, before = (torch.randn(3, n, dtype=torch.float64) for n in (15, 15, 5))
    leaves = [t.requires_grad_() for t in (gates, of_state, before)]
    state, workspace = _step_of_gru(*leaves)
    dh = torch.randn_like(state)
    dgates, dof_state, dbefore = torch.autograd.grad(state, leaves, dh)
    results = [dgates, dof_state, dbefore, dgates.sum(0), dof_state.sum(0)]
    results = [r.to(dtype) for r in results[: 5 if biased else 3]] + [None] * (0 if biased else 2)
    return (dh.to(dtype), workspace.detach().to(dtype), biased), {}, results


def _forward(step, gates, dtype, biased):
    """The op's two parts of the gates and its biases add up to what the cell sees."""
    parts = [torch.randn(3, gates * 5, dtype=torch.float64) for _ in range(2)]
    before = torch.randn(3, 5, dtype=torch.float64)
    biases = [torch.randn(gates * 5, dtype=torch.float64) for _ in range(2 if biased else 0)]
    of_input, of_state = (p + q for p, q in zip(parts, biases or (0, 0)))
    results = step(of_input, of_state, before)
    tensors = [t.to(dtype) for t in (*parts, before, *biases)]
    return tensors, {}, [r.to(dtype) for r in results]


def _lstm_forward(dtype, biased):
    return _forward(lambda x, h, c: _step_of_lstm(x + h, c), 4, dtype, biased)


def _gru_forward(dtype, biased):
    return _forward(_step_of_gru, 3, dtype, biased)


_F64, _F32 = torch.float64, torch.float32
SAMPLES = {
    "aten._thnn_fused_lstm_cell.default": [
        _lstm_forward(_F64, True), _lstm_forward(_F64, False), _lstm_forward(_F32, True)
    ],
    "aten._thnn_fused_gru_cell.default": [
        _gru_forward(_F64, True), _gru_forward(_F64, False), _gru_forward(_F32, True)
    ],
    "aten._thnn_fused_lstm_cell_backward_impl.default": [
        _lstm(_F64, True, True, True), _lstm(_F64, False, True, False), _lstm(_F64, True, False, True),
        _lstm(_F32, True, True, True),
    ],
    "aten._thnn_fused_gru_cell_backward.default": [
        _gru(_F64, True), _gru(_F64, False), _gru(_F32, True)
    ],
}  # fmt: skip
