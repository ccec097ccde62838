"""Backwards that are translated once for all sizes: the graphs, their gradients, and what is translated
again."""

import copy
import random

import pytest
import sized_models
import torch
from backend_training import backend_tests, check
from retrograd import native, schema
from retrograd.backend import backend, dynamic
from retrograd.sizes.specialize import specialized
from torch.nn import attention

FULL = {"require_full": True}


@pytest.fixture(autouse=True)
def fresh():
    # The CPU's flash attention saves its sums with the precision of fp32.
    exact = attention.sdpa_kernel(attention.SDPBackend.MATH)
    with backend_tests(), exact:
        yield


@pytest.fixture
def backwards(monkeypatch):
    """The DynamicBackwards of the test; `given`: the values that came for each."""
    found, prepare = [], dynamic.DynamicBackward.prepare

    def noted(self, values, absent=()):
        if not any(self is other for other in found):
            self.given = []
            found.append(self)
        self.given.append(list(values))
        return prepare(self, values, absent)

    monkeypatch.setattr(dynamic.DynamicBackward, "prepare", noted)
    return found


def _same_bytes(graph):
    """Of the graph as the library writes it."""
    return native.Graph.deserialize(graph).serialize()


@pytest.mark.parametrize("name", sized_models.CASES)
def test_a_bound_graph_is_the_translation_for_its_sizes_and_gives_its_gradients(name, backwards):
    model, inputs, sizes, translations = sized_models.CASES[name]
    ours = model().double()
    eager = copy.deepcopy(ours)
    run = torch.compile(ours, backend=backend, options=FULL, dynamic=True)
    for size in sizes:
        x = inputs(*size)
        for module, call in ((ours, run), (eager, eager)):
            module.zero_grad()
            call(x).backward()
        check(ours, eager, tolerance=1e-10)
    assert [backward.translations for backward in backwards] == translations
    for backward, values in [(b, v) for b in backwards for v in b.given]:
        bound = [r for t in backward._kept if (r := t.bind(values)) is not None]
        assert bound, values
        static = backward._translate(*specialized(backward._module, values), None)
        assert not schema.Graph.FromString(static.graph).HasField("sizes")
        assert {bytes(r.graph) for r in bound} == {_same_bytes(static.graph)}


def test_sizes_of_1_are_traces_of_their_own():
    model = sized_models.Gpt().double()
    eager = copy.deepcopy(model)
    run = torch.compile(model, backend=backend, options=FULL, dynamic=True)
    for size in ((3, 5), (1, 6), (4, 1), (1, 1), (1, 9), (2, 1)):
        x = sized_models.ids(*size)
        for module, call in ((model, run), (eager, eager)):
            module.zero_grad()
            call(x).backward()
        check(model, eager, tolerance=1e-10)


def test_random_lengths_are_translated_once(backwards):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    model = sized_models.Gpt()
    run = torch.compile(model, backend=backend, options=FULL, dynamic=True)
    # Sizes that are equal when a model is first traced are one symbol in PyTorch.
    run(sized_models.ids(3, 5)).backward()
    for _ in range(11):
        run(sized_models.ids(rng.randint(2, 9), rng.randint(2, 300))).backward()
    assert [b.translations for b in backwards] == [1]


def test_sizes_that_were_equal_at_the_first_call_are_traced_once_more(backwards):
    """PyTorch gives equal sizes one symbol, and traces again when they differ."""
    model = sized_models.Gpt()
    run = torch.compile(model, backend=backend, options=FULL, dynamic=True)
    for size in ((9, 9), (4, 45), (7, 7), (6, 13), (2, 118)):
        run(sized_models.ids(*size)).backward()
    assert [b.translations for b in backwards] == [1, 1]


def test_tensors_that_lie_otherwise_are_translated_again(backwards):
    """What a hook on saved tensors, or a channels-last image, gives."""
    model = sized_models.Cnn().double()
    eager = copy.deepcopy(model)
    run = torch.compile(model, backend=backend, options=FULL, dynamic=True)
    last = torch.channels_last
    cases = [(3, 20, 36, None), (4, 20, 37, last), (5, 24, 36, last), (6, 22, 28, None)]
    for *size, memory in cases:
        x = sized_models.images(*size)
        x = x if memory is None else x.to(memory_format=memory)
        for module, call in ((model, run), (eager, eager)):
            module.zero_grad()
            call(x).backward()
        check(model, eager, tolerance=1e-10)
    for backward in backwards:
        assert backward.translations <= 2


def test_a_gradient_in_other_strides_than_the_traced_ones_keeps_its_sizes(backwards):
    """Its strides follow from sizes as well: those of a transposed tensor."""
    model = torch.nn.Linear(8, 4).double()
    eager = copy.deepcopy(model)
    run = torch.compile(model, backend=backend, options=FULL, dynamic=True)
    for rows in (3, 5, 7, 11):
        x = torch.randn(rows, 8).double()
        gradient = torch.randn(4, rows).double().T
        for module, call in ((model, run), (eager, eager)):
            module.zero_grad()
            call(x).backward(gradient)
        check(model, eager, tolerance=1e-10)
    assert sum(b.translations for b in backwards) <= 2


def test_a_gradient_whose_rows_have_gaps_keeps_its_sizes(backwards):
    """As Inductor's forward leaves gaps behind rows of odd lengths."""
    model = torch.nn.Linear(8, 5).double()
    eager = copy.deepcopy(model)
    run = torch.compile(model, backend=backend, options=FULL, dynamic=True)
    for rows in (3, 5, 7, 11):
        x = torch.randn(2, rows, 8).double()
        gradient = torch.randn(2, rows, 6).double()[..., :5]
        for module, call in ((model, run), (eager, eager)):
            module.zero_grad()
            call(x).backward(gradient)
        check(model, eager, tolerance=1e-10)
    assert sum(b.translations for b in backwards) <= 2


@pytest.mark.parametrize("disable", ([], ["kept_partitions"]))
def test_a_new_size_keeps_partitions_of_a_size_near_by(disable, backwards):
    model = sized_models.Gpt().double()
    eager = copy.deepcopy(model)
    run = torch.compile(model, backend=backend, options=FULL | {"disable": disable}, dynamic=True)
    for length in (9, 10, 11, 17):
        x = sized_models.ids(3, length)
        for module, call in ((model, run), (eager, eager)):
            module.zero_grad()
            call(x).backward()
        check(model, eager, tolerance=1e-10)
    (backward,) = backwards
    assert len(backward._made) == 4
    for compiled in backward._made.values():
        executable = compiled.program.executable
        assert bool(executable.describe()["kept_regions"]) == (not disable)
        assert executable.explain("json")["groups"]


def test_what_no_symbol_can_say_is_translated_for_each_size(backwards, monkeypatch):
    def refuse(*_):
        raise dynamic.ExportError("the size is a Where, which no graph can say")

    monkeypatch.setattr(dynamic, "TorchSymbols", refuse)
    model = sized_models.Bert()
    run = torch.compile(model, backend=backend, options=FULL, dynamic=True)
    for length in (5, 9, 12):
        run(sized_models.ids(3, length)).backward()
    (backward,) = backwards
    assert backward.translations == 3 and not backward._kept
