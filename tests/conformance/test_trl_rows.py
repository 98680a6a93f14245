"""`trl_rows.csv` accounts once for every behaviour of TRL that the rule base was written against.

Its ids are those of a digest of two releases of TRL, made outside the project: a letter for the trainer and a number.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from memcfg.solver import Theory

HERE = Path(__file__).parent
LAST = {"B": 42, "S": 61, "D": 38, "K": 19, "W": 6, "G": 48, "L": 4, "Q": 8, "X": 33}
"""The digest's last row of each kind: every trainer, SFT, DPO, KTO, Reward, GRPO, RLOO, GKD, experimental ones."""


@pytest.fixture(scope="module")
def accounts() -> list[dict[str, str]]:
    with (HERE / "trl_rows.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_row_is_accounted_for_once(accounts: list[dict[str, str]]) -> None:
    ids = [account["id"] for account in accounts]
    assert sorted(ids) == sorted(f"{kind}{n:02}" for kind, last in LAST.items() for n in range(1, last + 1))
    assert len(ids) == 259


def test_rules_and_options_exist(accounts: list[dict[str, str]], theory: Theory) -> None:
    there = {"rule": theory.rules, "option": theory.options}
    gone = [
        (account["id"], name)
        for account in accounts
        for name in account["by"].split()
        if account["carried"] in there and name not in there[account["carried"]]
    ]
    assert not gone


def test_what_works_is_asserted_by_a_row(accounts: list[dict[str, str]], rows: list[Any]) -> None:
    asserted = {row.given for row in rows if row.then != "conflict"}
    assert [a["id"] for a in accounts if a["carried"] == "works" and a["by"] not in asserted] == []


def test_what_is_not_carried_says_why(accounts: list[dict[str, str]]) -> None:
    for account in accounts:
        assert account["carried"] in ("rule", "option", "works", "no"), account["id"]
        assert bool(account["by"]) is (account["carried"] != "no"), account["id"]
        assert account["why"] or account["carried"] != "no", account["id"]


def test_not_carried_lists_them(accounts: list[dict[str, str]]) -> None:
    text = (HERE / "NOT_CARRIED.md").read_text(encoding="utf-8")
    listed = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ") and line[2].isupper()]
    assert sorted(listed) == sorted(a["id"] for a in accounts if a["carried"] in ("works", "no"))
