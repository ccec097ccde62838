"""Architectures that train through the backend beside eager, in double precision on the CPU.

docs/pytorch.md lists them. What falls back is named here with the reason: another one is a failure.
"""

import backend_models
import pytest
import torch
from backend_training import interpreted_forwards, train_beside_eager
from retrograd.backend import messages

# Their losses are in fp32 whatever the model is in.
SINGLE = {"bert", "gpt2", "llama", "qwen3", "gemma2", "t5", "roberta", "mamba"}


@pytest.fixture(autouse=True)
def in_double():
    torch._dynamo.reset()
    messages.once.forget()
    torch.manual_seed(1)
    with interpreted_forwards():
        yield
    torch.set_default_dtype(torch.float32)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", backend_models.MODELS)
def test_five_steps_give_eagers_losses_and_gradients(name):
    made = backend_models.MODELS[name]()
    torch.set_default_dtype(torch.float64)
    ours, eager, worst, reasons = train_beside_eager(*made)
    assert ours == pytest.approx(eager, rel=1e-6 if name in SINGLE else 1e-8)
    assert worst < (1e-5 if name in SINGLE else 1e-7)
    assert reasons == []
