"""What a run that samples remembers of its largest round, and what it refuses before the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from memcfg import RunError
from memcfg.engine.memory import LargestPortion
from memcfg.rollouts import Sample

pytestmark = pytest.mark.torch


def samples(*lengths: int) -> list[Sample]:
    return [Sample([1] * n, True) for n in lengths]


def test_the_largest_portion_is_that_of_most_positions_padded() -> None:
    largest = LargestPortion()
    largest.begins([[[1] * 5, [1] * 3], [[1] * 4] * 2], limit=9)
    assert largest.lengths == [[5, 9], [3, 9]], "while it is sampled, each completion may be as long as the limit"
    largest.ends([samples(2, 1), samples(8, 1)])
    assert largest.lengths == [[4, 8], [4, 1]]
    largest.begins([[[1] * 2]], limit=3)
    assert largest.lengths == [[4, 8], [4, 1]]
    largest.ends([samples(3)])
    assert largest.lengths == [[4, 8], [4, 1]]


def longer(plan: Mapping[str, Any]) -> None:
    from memcfg.engine.rounds import refuse_longer

    refuse_longer(700, plan)  # type: ignore[arg-type]


def wider(plan: Mapping[str, Any]) -> None:
    from memcfg.engine.renewed import fits_row

    fits_row(700, 400, plan.get("truncation.max_length"))


@pytest.mark.parametrize(
    ("check", "plan", "said"),
    [
        (longer, {"generation.max_prompt_tokens": None}, None),
        (longer, {"generation.max_prompt_tokens": 700}, None),
        (
            longer,
            {"generation.max_prompt_tokens": 512},
            "`generation.max_prompt_tokens`: there is a prompt of 700 tokens, and memory was reckoned for 512\n"
            "  generation.max_prompt_tokens=700, or shorter prompts",
        ),
        (wider, {"truncation.max_length": None}, None),
        (wider, {"truncation.max_length": 1100}, None),
        (
            wider,
            {"truncation.max_length": 1024},
            "`generation.max_new_tokens`: a prompt of 700 tokens and 400 sampled ones are longer than a row may be, 1,024 "
            "tokens\n  truncation.max_length=1100",
        ),
    ],
)
def test_prompts_that_are_too_long_are_refused_before_the_first_step(
    check: Callable[[Mapping[str, Any]], None], plan: Mapping[str, Any], said: str | None
) -> None:
    if said is None:
        check(plan)
        return
    with pytest.raises(RunError) as caught:
        check(plan)
    assert str(caught.value) == said
