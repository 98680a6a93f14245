"""The built-in rewards, and the embedded prompts that they judge."""

from __future__ import annotations

import pytest
from memcfg_data.tasks import KINDS, tasks
from memcfg_rewards import verifiable


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("123456789012", "digits", 1.0),
        ("1 2 3 4 5 6 7 8 9 0 1 2", "digits", 1.0),  # spaces count nothing
        ("1", "digits", 1 / 12),  # a short one is counted as if it had twelve characters
        ("", "digits", 0.0),
        ("abcdefghijklmnopqrstuvwx", "vowels", 5 / 24),
        ("ABCDEFabcdef", "capitals", 0.5),
        ("!?abcdefghij", "marks", 2 / 12),
    ],
)
def test_the_share_of_characters(text: str, wanted: str, expected: float) -> None:
    assert verifiable.kinds([text], [wanted]) == [pytest.approx(expected)]


def test_ended_by_itself() -> None:
    assert verifiable.finished([True, False]) == [1.0, 0.0]


def test_prompts_ask_for_every_kind_of_every_module() -> None:
    found = tasks(["json.decoder.JSONDecoder", "json.dump", "topic lambda", "os.walk"])
    assert [task.name for task in found] == ["json"] * 4 + ["topic"] * 4 + ["os"] * 4
    assert found[1].prompt == "Write digits for json.\n\n"
    assert [task.wanted for task in found[:4]] == list(KINDS)
    assert set(KINDS) == set(verifiable.KINDS)
