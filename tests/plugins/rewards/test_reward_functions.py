"""The built-in rewards, and the embedded prompts that they judge."""

from __future__ import annotations

import sys

import pytest
from memcfg_data.tasks import KINDS, tasks
from memcfg_rewards import verifiable

from memcfg import RequestError


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


@pytest.mark.torch
@pytest.mark.parametrize("trusted", [True, False])
def test_modules_of_the_working_directory_are_found_by_the_program_too(tmp_path, monkeypatch, trusted) -> None:
    """`memcfg` does not look there as `python -m memcfg` does; it does where the user trusts the code, and last of all."""
    from memcfg_rewards.hooks import imported

    (tmp_path / "mine_here.py").write_text("def short(completions):\n    return [1.0 for _ in completions]\n")
    (tmp_path / "json.py").write_text("raise AssertionError('what is installed comes first')\n")
    monkeypatch.chdir(tmp_path)
    before = [entry for entry in sys.path if entry not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", list(before))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "mine_here", raising=False)
    if not trusted:
        with pytest.raises(RequestError, match="imported only where you say so"):
            imported("mine_here:short", {"rewards.trust_code": False}, "rewards.functions")
        assert sys.path == before
        return
    assert imported("mine_here:short", {"rewards.trust_code": True}, "rewards.functions")(["a"]) == [1.0]
    assert sys.path == [*before, str(tmp_path)]
    monkeypatch.delitem(sys.modules, "json")
    assert imported("json:dumps", {"rewards.trust_code": True}, "rewards.functions")([1]) == "[1]"
    monkeypatch.delitem(sys.modules, "mine_here")


@pytest.mark.torch
@pytest.mark.parametrize("name", ["mine:", ":score", "./mine.py:score", "..mine:score", "mine:Scores.score", "a:b:c"])
def test_what_does_not_name_a_function_of_a_module_is_told_how_to(name: str) -> None:
    from memcfg_rewards.hooks import imported

    with pytest.raises(RequestError) as caught:
        imported(name, {"rewards.trust_code": True}, "rewards.functions")
    assert str(caught.value) == (
        f"`rewards.functions`: `{name}` does not name a module and a function of it\n"
        "  write `my_rewards:score` for `score` of `my_rewards.py`"
    )


@pytest.mark.torch
def test_a_function_that_is_named_twice_is_given_once(monkeypatch) -> None:
    """So that what is said of it is that it is named twice, not that two plugins bring it."""
    from memcfg_rewards import hooks

    monkeypatch.setattr(hooks, "imported", lambda name, plan, option: len)
    plan = {"rewards.functions": ["mine:score", "mine:score"], "rewards.models": [], "rewards.trust_code": True}
    found = hooks.memcfg_rewards(plan, [], None)
    assert [reward.name for reward in found] == ["kinds", "finished", "mine:score"]
