"""Integers that know how they follow from symbols: their arithmetic, and what they take for granted."""

import random
import types

import pytest
import torch
from retrograd import capture, native, schema, sizes
from retrograd.builder import Builder
from retrograd.errors import ExportError
from retrograd.sizes import specialize, symbolic
from retrograd.sizes.table import NOT_NEGATIVE, NOT_ZERO, ZERO

INTEGERS = ("+", "-", "*", "//", "%", "max", "min", "abs", "if <", "if ==", "if", "index")


def _random_program(rng):
    """A function of a list of numbers, by arithmetic and branches."""

    def step(values, rng):
        kind, a = rng.choice(INTEGERS), rng.choice(values)
        b = rng.choice([*values, *(rng.randint(-5, 70) for _ in values)])
        return {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "//": lambda: a // b,
            "%": lambda: a % b,
            "max": lambda: sizes.size.maximum(a, b),
            "min": lambda: -sizes.size.maximum(-a, -b),
            "abs": lambda: abs(a),
            "if <": lambda: a + 1 if a < b else b - a,
            "if ==": lambda: 2 * a if a == b else b,
            "if": lambda: a if a else b + 1,
            "index": lambda: a + [3, 1, 4, 1, 5][b] if 0 <= b < 5 else a,
        }[kind]()

    seed, length = rng.random(), rng.randint(1, 7)

    def run(numbers):
        same = random.Random(seed)  # the same program for other numbers
        values = list(numbers)
        for _ in range(length):
            values.append(step(values, same))
        return values[-1]

    return run


def _graph_of(table, *values):
    """A native Graph that holds integers as starts of iotas and floats as values of fulls."""
    b = Builder("sizes")
    for value in values:
        number = sizes.number_of(value)
        if isinstance(number, float):
            b.output(b.full(value, torch.float64), "value")
        else:
            b.output(b.iota(torch.int64, (1,), 0, value), "value")
    table.write(b.graph, b.places)
    return native.Graph.deserialize(b.graph.SerializeToString(deterministic=True))


def _held(graph):
    """The numbers that a graph of _graph_of holds."""
    read = schema.Graph.FromString(graph.serialize())
    held = []
    for output in read.outputs:
        attrs = {a.name: a for a in read.nodes[output.value.node].attrs}
        held.append(attrs["value"].f if "value" in attrs else attrs["start"].i)
    return held


def test_programs_on_sizes_give_the_integers_of_programs_on_integers_wherever_facts_hold():
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    bound = refused = 0
    for number in range(1500):
        names = [f"s{i}" for i in range(rng.randint(1, 3))]
        hints = [rng.randint(1, 40) for _ in names]
        program = _random_program(rng)
        table = sizes.SizeTable()
        symbols = [table.symbol(n, h, least=rng.choice((0, 1))) for n, h in zip(names, hints)]
        try:
            result = program(symbols)
        except ZeroDivisionError:
            continue
        assert sizes.number_of(result) == program(hints), number
        if abs(sizes.number_of(result)) >= 2**63:
            continue
        try:
            graph = _graph_of(table, result)
        except ExportError as error:
            assert "64-bit" in str(error)
            continue
        for _ in range(8):
            values = [rng.choice((1, 2, 3, 64, rng.randint(1, 90), h)) for h in hints]
            try:
                held = _held(graph.bind(dict(zip(names, values))))
            except native.Failure as failure:
                assert values != hints or "64-bit" in failure.message, (number, values)
                refused += 1
                continue
            assert held == [program(values)], (number, values)
            bound += 1
    assert bound > 4000 and refused > 500


def _table():
    table = sizes.SizeTable()
    return table, table.symbol("b", 3, least=1), table.symbol("t", 16, least=2, most=1024)


def test_equal_sizes_in_other_words_are_one_expression():
    _, b, t = _table()
    same = [
        (b * t + t, t * (b + 1)),
        ((b * t * 64) // (t * 64), b),
        ((t - 1) // 2 + 1, (t + 1) // 2),
        ((4 * t + 5) // 4, t + 1),
        ((b + t) * (b + t), b * b + 2 * b * t + t**2),
        (((b + 1) * (t + b)) // (t + b), b + 1),
        ((t * 6) % 6, 0),
        (-(-t), t),
        (t - t, 0),
    ]
    for left, right in same:
        assert sizes.identical(left, right), (left, right)
    assert not sizes.identical(b, t) and not sizes.identical(b, 3)
    assert sizes.identical((b, 4), [b, 4]) and not sizes.identical((b, 4), (b, 4, 1))


def test_a_comparison_that_every_size_decides_alike_leaves_no_fact():
    table, b, t = _table()
    assert t >= 2 and t != 1 and t <= 1024 and b * t > 0 and b + t > 2 and not t < 2
    assert 64 * b > b and (t + 1) // 2 >= 1 and bool(t) and (t - 1) // 1024 == 0
    assert not table.facts


def test_a_comparison_that_sizes_decide_leaves_what_it_found():
    for compare, found in (
        (lambda b, t: t == 16, (True, ZERO)),
        (lambda b, t: t == 17, (False, NOT_ZERO)),
        (lambda b, t: t > 4, (True, NOT_NEGATIVE)),
        (lambda b, t: b > t, (False, NOT_NEGATIVE)),
        (lambda b, t: (b, t) == (3, 4), (False, ZERO)),
    ):
        table, b, t = _table()
        assert compare(b, t) is found[0]
        assert next(iter(table.facts))[0] == found[1]


@pytest.mark.parametrize(
    "use", (range, hash, int, float, lambda t: [0] * t, lambda t: t * 0.5, lambda t: {t: 1}[16])
)
def test_what_takes_the_very_number_holds_for_this_number_alone(use):
    table, _, t = _table()
    use(t)
    graph = _graph_of(table, t + 1)
    assert _held(graph.bind({"b": 5, "t": 16})) == [17]
    with pytest.raises(native.Failure, match="RG_FAILED_PRECONDITION.*t - 16 = 0"):
        graph.bind({"b": 5, "t": 15})


def test_quotients_are_rounded_as_pytorch_rounds_them():
    table, b, t = _table()
    values = [1 / (b * t), 1.0 / ((b * t * 64) / 64), (b * t) / t, 2 / (t - 1), 3.0 / b, -(1 / t)]
    for value in values:
        assert isinstance(value, sizes.Quotient)
    graph = _graph_of(table, *values)
    for m, n in ((3, 16), (7, 1023), (1, 2), (1000003, 9)):
        expected = [1 / (m * n), 1.0 / (m * n), float(m), 2 / (n - 1), 3.0 / m, -(1 / n)]
        assert _held(graph.bind({"b": m, "t": n})) == expected
    assert sum(relation == ZERO for relation, _ in table.facts) == 0
    assert isinstance(t / 3 * 2.5, float)  # rounded twice: of this number alone
    assert any(relation == ZERO for relation, _ in table.facts)


def test_no_division_by_a_size_that_is_0():
    table = sizes.SizeTable()
    n = table.symbol("n", 0)
    for divide in (lambda: 1 / n, lambda: 1 // n, lambda: 5 % n, lambda: n // 0, lambda: n / 0):
        with pytest.raises(ZeroDivisionError):
            divide()


def test_a_hint_is_a_number_of_its_symbol():
    table = sizes.SizeTable()
    for wrong in ({"least": 4}, {"most": 2}, {"multiple_of": 2}):
        with pytest.raises(ExportError, match="3 is no value of the size n"):
            table.symbol("n", 3, **wrong)


def test_numbers_beyond_64_bits_are_refused_where_sizes_are_bound():
    table, b, t = _table()
    graph = _graph_of(table, b * t)
    assert [s.name for s in graph.symbols] == ["b", "t"]
    for sizes_, why in (
        ({"b": 2**63, "t": 16}, "b is 9223372036854775808, which is no 64-bit integer"),
        ({"b": 2**60, "t": 16}, "b\\*t at b=1152921504606846976, t=16 is beyond 64-bit integers"),
        ({"b": 1}, "t is not bound"),
        ({"b": 0, "t": 16}, "b=0 is none of its numbers: at least 1"),
        ({"b": 1, "t": 16, "n": 1}, "no size is called 'n'"),
    ):
        with pytest.raises(native.Failure, match=f"RG_INVALID_ARGUMENT: .*{why}"):
            graph.bind(sizes_)
    assert _graph_of(sizes.SizeTable(), 4).symbols == []


def _strides(numbers, shape, **options):
    return specialize.strides_with_sizes(numbers, shape, **options)


def test_strides_behind_a_gap_that_no_size_decides_follow_from_sizes():
    """Rows of 50257 elements, 50264 apart."""
    table, b, t = _table()
    made = _strides((50264 * 16, 50264, 1), (b, t, 50257), pin=True)
    graph = _graph_of(table, *made)
    assert _held(graph.bind({"b": 5, "t": 9})) == [50264 * 9, 50264, 1]


def test_dense_strides_of_any_order_follow_from_sizes():
    table, b, t = _table()
    graph = _graph_of(table, *_strides((1, 3 * 16, 3), (b, 7, t), pin=True))
    assert _held(graph.bind({"b": 5, "t": 9})) == [1, 45, 5]
    table, b, t = _table()
    graph = _graph_of(table, *_strides((0, 7, 1), (b, t, 7), pin=True))  # an expanded axis
    assert _held(graph.bind({"b": 5, "t": 9})) == [0, 7, 1]


def test_a_stride_behind_any_other_gap_makes_the_fact_that_its_size_stays():
    """Rows of t elements, 20 apart: 20 is too short for other rows, and follows from nothing."""
    table, b, t = _table()
    made = _strides((20, 1), (b, t), pin=True)
    graph = _graph_of(table, *made)
    assert _held(graph.bind({"b": 5, "t": 16})) == [20, 1]
    with pytest.raises(native.Failure, match="t - 16 = 0"):
        graph.bind({"b": 5, "t": 17})


def test_an_output_that_was_seen_with_gaps_is_bound_where_its_rows_have_their_length():
    """What ran may have left gaps that the trace has not."""
    table, b, t = _table()
    node = torch.fx.Graph().placeholder("g")
    node.meta["val"] = torch.empty(3, 16, device="meta")
    node.meta[symbolic.SHAPES] = [(b, t)]
    node.meta[symbolic.LYING] = types.SimpleNamespace(stride=lambda: (t, 1))
    recorder = types.SimpleNamespace(
        names=types.SimpleNamespace(of=lambda *_: ("x", None)),
        results=[torch.empty(3, 16)], result_strides=[(20, 1)],
    )  # fmt: skip
    output = capture._output(node, 0, None, recorder)
    graph = _graph_of(table, *output.strides)
    assert _held(graph.bind({"b": 5, "t": 16})) == [20, 1]
    with pytest.raises(native.Failure):
        graph.bind({"b": 5, "t": 30})


def test_numbers_in_the_strides_of_an_input_are_sizes_of_the_first_run():
    """Inductor's forward may have its first sizes in the strides of what it saves."""
    table, b, t = _table()
    notes = specialize._Notes(types.SimpleNamespace(size_of=lambda size: size))
    tensor = torch.empty_strided((3, 16, 7), (128, 8, 1))
    strides = notes._strides(tensor, tensor, (b, t, 7))
    assert _held(_graph_of(table, *strides).bind({"b": 5, "t": 9})) == [72, 8, 1]
