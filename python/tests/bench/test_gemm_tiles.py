"""bench/gemm_tiles.py: specs of one tile, and a tile's factor."""

import conftest
import gemm_tiles
import pytest


def test_a_spec_for_one_tile_lists_it_alone():
    text = (conftest.ROOT / "fusion/devices/h200.textproto").read_text()
    changed = gemm_tiles.spec_with(text, (64, 256), 4)
    assert changed.count("tiles {") == 1
    assert "tiles { rows: 64 columns: 256 cluster: 4 factor: 1 source: " in changed
    assert "product_factor: 1\n" in changed and "pass_share: 0.001\n" in changed


def test_a_tiles_factor_is_its_time_by_wave_and_element_over_the_reference_tiles():
    def timed(m, n, tile, us):
        return {"m": m, "n": n, "k": 512, "tile": tile, "us": us}

    rows = [
        timed(98304, 2048, (128, 128, 2), 100.0),
        timed(98304, 2048, (64, 128, 2), 140.0),  # as many waves of half the elements, twice
        timed(1024, 1024, (128, 128, 2), 10.0),  # 64 tiles on 132 SMs: one wave
        timed(1024, 1024, (64, 128, 2), 7.0),  # one wave of half the elements
        {"m": 512, "n": 512, "k": 512, "tile": (64, 128, 2), "refused": "a test"},
    ]
    found = gemm_tiles.factors(rows, 132)
    assert found[(128, 128, 2)] == 1
    assert found[(64, 128, 2)] == pytest.approx(1.4, rel=0.01)
