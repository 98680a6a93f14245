"""The account of tokens and rows."""

from __future__ import annotations

import pytest

from memcfg import DataError
from memcfg.engine.ledger import Ledger

pytestmark = pytest.mark.torch

REQUIRED = {
    "tokens_in", "tokens_kept", "tokens_truncated", "tokens_dropped", "tokens_padded", "tokens_supervised", "rows_in",
    "rows_dropped", "fill", "reasons", "bins",
}  # fmt: skip


def test_counts_add_up_by_name() -> None:
    ledger = Ledger()
    ledger.add(tokens_in=10, rows_in=2)
    ledger.add(tokens_in=5, tokens_kept=15)
    assert (ledger.tokens_in, ledger.rows_in, ledger.balance) == (15, 2, 0)


def test_a_misspelt_counter_is_refused() -> None:
    with pytest.raises(TypeError, match="tokens_input"):
        Ledger().add(tokens_input=1)


def test_dropped_rows_are_counted_by_reason() -> None:
    ledger = Ledger()
    ledger.drop("no target left", rows=2, tokens=7)
    ledger.drop("no target left", rows=1, tokens=3)
    ledger.drop("no text", rows=0, tokens=0)
    assert ledger.to_dict()["reasons"] == {"no target left": 3}
    assert (ledger.rows_dropped, ledger.tokens_dropped) == (3, 10)


def test_an_account_that_does_not_balance_is_an_error() -> None:
    ledger = Ledger(tokens_in=10, tokens_kept=6, tokens_truncated=1, tokens_dropped=1)
    with pytest.raises(DataError, match="lost account of 2 of 10 tokens of the train rows"):
        ledger.check("train")
    ledger.add(tokens_truncated=2)
    ledger.check("train")


@pytest.mark.parametrize(
    ("fields", "fill", "because"),
    [
        ({}, None, "nothing was laid out"),
        ({"tokens_seen": 30, "tokens_padded": 10}, 0.75, "measured on the batches"),
        ({"tokens_seen": 30, "tokens_padded": 10, "fill": 0.99}, 0.99, "the packer knows better"),
    ],
)
def test_fill(fields: dict[str, int], fill: float | None, because: str) -> None:
    assert Ledger(**fields).to_dict()["fill"] == fill, because  # type: ignore[arg-type]


def test_the_file_form_has_every_agreed_key() -> None:
    assert set(Ledger().to_dict()) >= REQUIRED
