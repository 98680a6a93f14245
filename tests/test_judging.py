"""What is said to reward functions and judges that answer otherwise than asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import pytest

pytestmark = pytest.mark.torch

WORDS = SimpleNamespace(batch_decode=lambda rows, **_: [" ".join(f"w{i}" for i in ids) for ids in rows])


def sampled(**columns: Any) -> Any:
    from memcfg.rollouts import Round, Sample

    about = [{"prompt": f"p{i}", **{k: v[i] for k, v in columns.items()}} for i in range(4)]
    return Round([[1]] * 4, about, [Sample([5 + i, 2], i % 2 == 0) for i in range(4)], 2)


def told(function: Any, **columns: Any) -> str:
    """What the error says."""
    from memcfg import RunError
    from memcfg.judging import Reward, Rewards

    with pytest.raises(RunError) as caught:
        Rewards([Reward("mine", function)], [1.0], WORDS)(sampled(**columns))
    return str(caught.value)


def broken() -> list[float]:
    raise KeyError("answer")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (broken, "the reward `mine` raised KeyError: 'answer'"),
        (lambda: [1.0, 2.0], "the reward `mine` gave 2 values for 4 completions"),
        (lambda: None, "the reward `mine` gave nothing for 4 completions"),
        (lambda: 1.0, "the reward `mine` gave a float for 4 completions"),
        (lambda: [0, 1, None, 1], "the reward `mine` gave None for completion 2, which is no finite number"),
        (lambda: [0, float("nan"), 0, 0], "the reward `mine` gave nan for completion 1, which is no finite number"),
        (lambda: [0, 0, 0, float("inf")], "the reward `mine` gave inf for completion 3, which is no finite number"),
        (lambda: [0, 0, "0.5", 0], "the reward `mine` gave '0.5' for completion 2, which is no finite number"),
        (lambda: [0, 1e39, 0, 0], "the reward `mine` gave 1e+39 for completion 1, which is more than float32 holds"),
        (lambda: [[1.0, 2.0]] * 4, "the reward `mine` gave [1.0, 2.0] for completion 0, which is no finite number"),
        (lambda: "four", "the reward `mine` gave a str for 4 completions"),
        (lambda: (1.0 for _ in range(4)), "the reward `mine` gave a generator for 4 completions"),
        (lambda: numpy.zeros((2, 2)), "the reward `mine` gave 2 values for 4 completions"),
        (lambda: numpy.float64(1.0), "the reward `mine` gave a float64 for 4 completions"),
        (
            lambda answer: [1.0] * 4,
            "the reward `mine` asks for `answer`, and the rows have no such column; there are `level`, `prompts`, "
            "`completions`, `prompt_ids`, `completion_ids`, `finished`",
        ),
    ],
)
def test_one_message_each(function: Any, text: str) -> None:
    assert told(function, level=[1, 2, 3, 4]) == f"`rewards.functions`: {text}"


def test_numbers_come_in_any_sequence_and_no_function_sees_what_another_did_to_its_own() -> None:
    import torch

    from memcfg import RunError
    from memcfg.judging import Reward, Rewards

    def first(completion_ids: list[Any], prompts: list[Any]) -> Any:
        completion_ids.clear()
        prompts.clear()
        return torch.arange(4)

    kinds = [first, lambda completion_ids: numpy.array([len(ids) for ids in completion_ids]), lambda: (True,) * 4]
    found = Rewards([Reward(str(n), kind) for n, kind in enumerate(kinds)], [1.0] * 3, WORDS)(sampled())
    assert found[:, 0].tolist() == [0, 1, 2, 3]
    assert bool((found[:, 1] >= 1).all())
    assert found[:, 2].tolist() == [1.0] * 4
    with pytest.raises(RunError, match="gave 1000"):
        Rewards([Reward("large", lambda: [10**400] * 4)], [1.0], WORDS)(sampled())


def test_a_function_is_given_what_it_asks_for() -> None:
    from memcfg.judging import Reward, Rewards

    seen: dict[str, Any] = {}

    def asks(completions: Any, level: Any, finished: Any = None, unknown: Any = "own") -> list[float]:
        seen.update(completions=completions, level=level, finished=finished, unknown=unknown)
        return [0.5, 1, True, 2]

    values = Rewards([Reward("asks", asks), Reward("all", lambda **given: given["level"])], [1.0, 2.0], WORDS)
    found = values(sampled(level=[1, 2, 3, 4]))
    assert seen == {
        "completions": ["w5 w2", "w6 w2", "w7 w2", "w8 w2"], "level": [1, 2, 3, 4],
        "finished": [True, False, True, False], "unknown": "own",
    }  # fmt: skip
    assert found.tolist() == [[0.5, 1], [1, 2], [1, 3], [2, 4]]
    assert values.total(found).tolist() == [2.5, 5, 7, 10]


def test_names_and_weights_must_fit() -> None:
    from memcfg import RequestError, RunError
    from memcfg.judging import Reward, chosen

    found = [Reward("length", list), Reward("format", list)]
    said = []
    for names, weights in (
        (["lenght"], None), ([], None), (["length"], [1.0, 2.0]), (["length"] * 2, None), ([3], None),
        (["mine.score"], None), (["mine."], None),
    ):  # fmt: skip
        with pytest.raises(RequestError) as caught:
            chosen(found, names, weights, None)
        said.append(str(caught.value))
    assert said == [
        "`rewards.functions`: there is no reward function `lenght` (there are `length`, `format`); did you mean `length`?",
        "`rewards.functions`: no reward function is named, and completions must be worth something\n"
        "  rewards.functions=[NAME]  # there are `length`, `format`",
        "`rewards.weights`: [1.0, 2.0] is not one number for each of the 1 reward functions",
        "`rewards.functions`: `length` is named 2 times, and its figures would be one another's\n"
        "  name it once, with its weight in `rewards.weights`",
        "`rewards.functions`: `3` is no name of a reward function",
        "`rewards.functions`: there is no reward function `mine.score` (there are `length`, `format`); did you mean `mine:score`?",
        "`rewards.functions`: there is no reward function `mine.` (there are `length`, `format`)",
    ]
    with pytest.raises(RunError) as twice:
        chosen([*found, Reward("length", list)], ["length"], None, None)
    assert str(twice.value) == "`rewards.functions`: two plugins bring a reward named `length`"


@pytest.mark.parametrize("weight", [1e39, -1e300])
def test_a_sum_that_float32_does_not_hold_is_refused(weight: float) -> None:
    """Its deviation would overflow, and every advantage be zero without a word."""
    from memcfg import RunError
    from memcfg.judging import Reward, Rewards

    rewards = Rewards([Reward("one", lambda: [0.0, 1.0, 2.0, 3.0])], [weight], WORDS)
    with pytest.raises(RunError) as caught:
        rewards.total(rewards(sampled()))
    assert str(caught.value) == (
        f"`rewards.weights`: the weighted sum of a completion's rewards is {abs(3 * weight):.3g}, which is more than float32 "
        "holds\n  smaller weights, or smaller rewards"
    )


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([0], "the judge `mine` gave 1 value for 2 pairs"),
        ([0, 2], "the judge `mine` gave 2 for pair 1, which is neither 0 nor 1"),
        ([None, 1], "the judge `mine` gave None for pair 0, which is neither 0 nor 1"),
    ],
)
def test_a_judge_picks_one_of_two(answers: Any, text: str) -> None:
    from memcfg import RunError
    from memcfg.judging import Judge, preferred

    with pytest.raises(RunError) as caught:
        preferred(Judge("mine", lambda completions: answers), sampled(), WORDS)
    assert str(caught.value) == f"`online_dpo.judge`: {text}"


def test_a_judge_sees_pairs() -> None:
    from memcfg.judging import Judge, preferred

    seen: list[Any] = []

    def longer(prompts: Any, completions: Any) -> list[int]:
        seen.extend([prompts, completions])
        return [0, 1]

    assert preferred(Judge("mine", longer), sampled(), WORDS) == [0, 1]
    assert seen == [["p0", "p2"], [["w5 w2", "w6 w2"], ["w7 w2", "w8 w2"]]]
