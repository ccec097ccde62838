"""Predicted and measured times of convolutions' gradients: what is read, how it is summed up."""

import types

import convolution_prices as prices
import pytest


def pair(measured, predicted, groups=1, op=prices.OPS[0]):
    return prices.Pair(types.SimpleNamespace(groups=groups), op, (), measured, predicted)


def test_the_time_of_the_chosen_implementation_is_read():
    row = {
        "calls": {
            "ours": [
                {"op": prices.OPS[0], "by": "cuDNN, plan 1 of 40:  eng22: 11.5 us", "beside": []},
                {"op": prices.OPS[1], "by": "kernels of ours, 1 split: 5.7 us"},
                {"op": "matmul", "by": "the library: 3.4 us"},
            ]
        }
    }
    assert prices.measured_us(row) == {prices.OPS[0]: 11.5, prices.OPS[1]: 5.7}
    assert prices.measured_us({"failed": "why"}) == {}


def test_prices_of_a_plan_are_read_by_op():
    groups = [
        {"ops": [{"op": prices.OPS[1]}], "price_ps": 2_500_000},
        {"ops": [{"op": "mul"}], "price_ps": 1_000_000},
    ]
    assert prices.predicted_us({"groups": groups}) == {prices.OPS[1]: 2.5}


def test_errors_and_order_are_summed_up():
    error, ratio, order = prices.summary([pair(2, 1), pair(4, 8), pair(10, 6)])
    assert error == pytest.approx((0.5 + 1 + 0.4) / 3)
    assert ratio == pytest.approx((0.5 * 2 * 0.6) ** (1 / 3))
    assert order == pytest.approx(2 / 3)


def test_the_order_of_equal_times_is_not_asked():
    assert prices.summary([pair(2, 1), pair(2.05, 3)])[2] is None
    assert "pairs in order -" in prices.line("two", [pair(2, 1), pair(2.05, 3)])


def test_kinds_tell_gradients_and_groups_apart():
    kinds = {pair(1, 1, g, op).kind for g in (1, 2) for op in prices.OPS}
    assert len(kinds) == 4
