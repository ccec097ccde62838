"""bench/quantisers.py at small sizes on the host: its rows, and equal bits on both sides."""

import json

import command
import fp8_block_samples  # noqa: F401  (stands in for torchao's kernels)
import fp8_samples  # noqa: F401  (the same)
import pytest
import quantisers

SMALL = {
    "experts": (quantisers.EXPERTS, (2, 64, 48), None),
    "columns": (quantisers.COLUMNS, (64, 48), 3),
    "rows": (quantisers.ROWS, (48, 64), 3),
    "line": (quantisers.LINE, (48, 64), None),
    "block_columns": (quantisers.BLOCK_COLUMNS, (256, 128), None),
    "blocks": (f"{quantisers.BLOCK_ROWS} {quantisers.BLOCK_COLUMNS}", (128, 256), None),
    "squares": (quantisers.SQUARES, (256, 128), None),
}


@command.needs_retrograd
def test_each_kind_gives_the_bits_of_its_definition(tmp_path, monkeypatch):
    from measure import ours

    monkeypatch.setattr(quantisers, "QUANTISERS", SMALL)
    out = tmp_path / "rows.json"
    options = quantisers.parsed(
        [*SMALL, "--device", "cpu", "--repeat", "1", "--spec", "h100", "--commit", "1234567",
         "--out", str(out)]
    )  # fmt: skip
    options.library = ours.find_library(options.library)
    quantisers.run(options)
    rows = json.loads(out.read_text())["quantisers"]
    assert [row["quantiser"] for row in rows] == list(SMALL)
    for row in rows:
        assert row["bits"], row["quantiser"]
        assert row["commit"] == "1234567"
        assert row["unequal_gradients_of_4_runs"] == 0
        assert row["floor_bytes"] > 48 * 64 * 3


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        quantisers.parsed(["experts_of_nobody"])
    assert "experts_16x8192x5120" in capsys.readouterr().err
