"""Preference pairs from the standard library: real text, of like length, apart by package."""

from __future__ import annotations

import pytest
from memcfg_data.preferences import ASKED, LONGEST, RATIO, SOURCE, preferences
from memcfg_data.stdlib import Pair, files, pairs, root


def asked(name: str, text: str) -> Pair:
    return Pair(name, f"{ASKED}{name}(x).\n\n", text)


def source(name: str, text: str) -> Pair:
    return Pair(name, f"{SOURCE}of module.\n\ndef f(x):\n", text)


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("Return twice the number.", "    return 2 * number + 0\n", 1),
        ("Return twice the number.", "    return 2\n", 0),
        ("Short.", "    return the_sum_of(many, different, numbers)\n", 0),
        ("x" * (LONGEST + 1), "y" * (LONGEST + 1), 0),
    ],
)
def test_answers_are_of_like_length(text: str, code: str, expected: int) -> None:
    assert len(preferences([asked("a.f", text), source("a.f", code)])) == expected


def test_the_better_answer_is_the_documentation() -> None:
    (found,) = preferences(
        [asked("a.b.f", "Return twice the number."), source("a.b.f", "    y = 2 * x\n    return y\n")]
    )
    assert (found.name, found.chosen, found.rejected) == ("a", "Return twice the number.", "y = 2 * x\nreturn y")


def test_a_function_without_source_has_no_pair() -> None:
    assert preferences([asked("a.f", "Return twice the number."), source("a.g", "    return 2 * number\n")]) == []


@pytest.mark.slow
def test_neither_answer_is_known_by_its_length() -> None:
    folder = root()
    some = [pair for file in files(folder)[:150] for pair in pairs(file, folder)]
    found = preferences(some)
    assert len(found) > 50
    assert all(
        max(map(len, sides)) <= RATIO * min(map(len, sides)) for sides in ((p.chosen, p.rejected) for p in found)
    )
    longer = sum(len(p.chosen) > len(p.rejected) for p in found) / len(found)
    assert 0.3 < longer < 0.7
