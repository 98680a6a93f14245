"""What completions are worth: reward functions and judges by name, called and checked.

    found = hooks.rewards(plan=plan, found=[], bench=bench)         # Reward("length", function), Judge("longer", function)
    rewards = chosen(found, ["length"], weights, tokenizer)
    values = rewards(sampled)                                       # float64 [completions, functions]

A reward function takes any of these by name, each a list with one entry for each completion, and gives a number for each:
`prompts` and `completions` (text; messages where the row's prompt is messages), `prompt_ids` and `completion_ids`, `finished`
(whether it ended by itself), and every column of the data by its own name. A judge takes `prompts` and `completions` (pairs), and the
columns, and gives for each pair 0 or 1: which of the two is better.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from memcfg.errors import MemcfgError, Problem, RequestError, RunError
from memcfg.rollouts import Round

if TYPE_CHECKING:
    from memcfg.batch import Attention, Layout

OPTION: Final = "rewards.functions"
JUDGE_OPTION: Final = "online_dpo.judge"
LARGEST: Final = 3.4028235e38
"""The largest finite float32, which advantages are."""


@dataclass(frozen=True)
class Reward:
    """A reward function and its name. `label`: what figures call it, where that is something else; `option`: the one that
    named it, for errors."""

    name: str
    function: Callable[..., Sequence[float]]
    label: str | None = None
    option: str = OPTION


@dataclass(frozen=True)
class Judge:
    """A pairwise judge and its name."""

    name: str
    function: Callable[..., Sequence[int]]


@dataclass(frozen=True)
class Bench:
    """What a model that judges completions is run with: the device, the trained model's tokenizer, the plan's layout for a
    tokenizer, and its attention for a model, on which it is switched on."""

    device: str
    tokenizer: Any
    layout: Callable[[Any], Layout]
    attention: Callable[[torch.nn.Module], Attention]


@dataclass(frozen=True)
class Rewards:
    """The functions of a run and the weight of each."""

    functions: Sequence[Reward]
    weights: Sequence[float]
    tokenizer: Any

    @property
    def names(self) -> list[str]:
        return [reward.label or reward.name for reward in self.functions]

    def __call__(self, sampled: Round) -> torch.Tensor:
        """Float64 [completions, functions], of this process's completions. Raises `RunError` for a function that raises, or
        that does not give one finite number for each completion."""
        given = arguments(sampled, self.tokenizer)
        columns = [
            _checked(reward, _called(reward, reward.option, given), len(sampled.samples)) for reward in self.functions
        ]
        return torch.tensor(columns, dtype=torch.float64).T.contiguous()

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The weighted sum of the functions' values: float64 [completions]. Raises `RunError` for one that float32 does not
        hold."""
        found = values @ torch.tensor(self.weights, dtype=torch.float64, device=values.device)
        if not bool((found.abs() <= LARGEST).all()):
            largest = float(found.abs().max())
            text = f"the weighted sum of a completion's rewards is {largest:.3g}, which is more than float32 holds"
            raise RunError(Problem(text, key="rewards.weights", fix="smaller weights, or smaller rewards"))
        return found


def chosen(found: Sequence[Any], names: Sequence[str], weights: Sequence[float] | None, tokenizer: Any) -> Rewards:
    """The reward functions with these names. Raises `RequestError` for none, an unknown one, or other than one weight each."""
    offered = by_name(found, Reward)
    if not names:
        text = "no reward function is named, and completions must be worth something"
        raise RequestError(Problem(text, key=OPTION, fix=f"{OPTION}=[NAME]  # {_listed(offered)}"))
    for name in names:
        if not isinstance(name, str):
            raise RequestError(Problem(f"`{name}` is no name of a reward function", key=OPTION))
        if list(names).count(name) > 1:
            text = f"`{name}` is named {list(names).count(name)} times, and its figures would be one another's"
            raise RequestError(Problem(text, key=OPTION, fix="name it once, with its weight in `rewards.weights`"))
        if name not in offered:
            near = _near(name, offered)
            text = f"there is no reward function `{name}` ({_listed(offered)})"
            raise RequestError(Problem(text, key=OPTION, nearest=near))
    given = [1.0] * len(names) if weights is None else list(weights)
    if len(given) != len(names) or not all(isinstance(w, int | float) and math.isfinite(w) for w in given):
        text = f"{given} is not one number for each of the {len(names)} reward functions"
        raise RequestError(Problem(text, key="rewards.weights"))
    return Rewards([offered[name] for name in names], [float(w) for w in given], tokenizer)


def _near(name: str, offered: Mapping[str, Any]) -> tuple[str, ...]:
    """What may have been meant: a name that is like it; of `module.function`, the function of that module."""
    module, dot, function = name.rpartition(".")
    near = tuple(difflib.get_close_matches(name, offered, n=2))
    return near or ((f"{module}:{function}",) if dot and module and function else ())


def by_name(found: Sequence[Any], kind: type[Reward] | type[Judge]) -> dict[str, Any]:
    """What is of this kind, by name. Raises `RunError` where two have one name: an installation would change a run."""
    offered: dict[str, Any] = {}
    for one in found:
        if isinstance(one, kind):
            if one.name in offered:
                raise RunError(Problem(f"two plugins bring a {kind.__name__.lower()} named `{one.name}`", key=OPTION))
            offered[one.name] = one
    return offered


def preferred(judge: Judge, sampled: Round, tokenizer: Any) -> list[int]:
    """Which of each pair of completions the judge prefers: 0 or 1. Raises `RunError` for any other answer."""
    given = arguments(sampled, tokenizer)
    paired = {name: values[::2] for name, values in given.items()}
    for name in ("completions", "completion_ids", "finished"):
        paired[name] = [list(pair) for pair in zip(given[name][::2], given[name][1::2], strict=True)]
    answers = _called(judge, JUDGE_OPTION, paired)
    wanted = len(sampled.samples) // 2
    if _length(answers) != wanted:
        raise RunError(Problem(f"the judge `{judge.name}` gave {_size(answers)} for {wanted} pairs", key=JUDGE_OPTION))
    found = [_number(answer) for answer in answers]
    wrong = next((place for place, answer in enumerate(found) if answer not in (0.0, 1.0)), None)
    if wrong is not None:
        text = f"the judge `{judge.name}` gave {answers[wrong]!r} for pair {wrong}, which is neither 0 nor 1"
        raise RunError(Problem(text, key=JUDGE_OPTION))
    return [int(answer) for answer in found if answer is not None]


def arguments(sampled: Round, tokenizer: Any) -> dict[str, list[Any]]:
    """What reward functions may ask for, by name."""
    texts = tokenizer.batch_decode([sample.ids for sample in sampled.samples], skip_special_tokens=True)
    prompts = [about.get("prompt") for about in sampled.about]
    names = dict.fromkeys(name for about in sampled.about for name in about if name != "prompt")
    return {
        **{name: [about.get(name) for about in sampled.about] for name in names},
        "prompts": prompts,
        "completions": [
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for prompt, text in zip(prompts, texts, strict=True)
        ],
        "prompt_ids": [list(prompt) for prompt in sampled.prompts],
        "completion_ids": [list(sample.ids) for sample in sampled.samples],
        "finished": [sample.finished for sample in sampled.samples],
    }


def _called(one: Reward | Judge, option: str, given: Mapping[str, list[Any]]) -> Any:
    """The answer of a function that is given what it asks for."""
    what = f"{type(one).__name__.lower()} `{one.name}`"
    parameters = inspect.signature(one.function).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    missing = [p.name for p in named if p.default is p.empty and p.name not in given]
    if missing:
        columns = ", ".join(f"`{name}`" for name in given)
        text = f"the {what} asks for `{missing[0]}`, and the rows have no such column; there are {columns}"
        raise RunError(Problem(text, key=option))
    names = given if takes_all else [p.name for p in named if p.name in given]
    try:
        return one.function(**{name: list(given[name]) for name in names})  # its own lists, to do with as it likes
    except MemcfgError:
        raise
    except (Exception, SystemExit) as error:
        said = ": ".join(filter(None, [type(error).__name__, " ".join(str(error).split())]))
        raise RunError(Problem(f"the {what} raised {said}", key=option)) from error


def _checked(reward: Reward, values: Any, count: int) -> list[float]:
    """The values as numbers, one for each completion."""
    if _length(values) != count:
        text = f"the reward `{reward.name}` gave {_size(values)} for {count} completions"
        raise RunError(Problem(text, key=reward.option))
    found = [_number(value) for value in values]
    for place, number in enumerate(found):
        if number is None or not abs(number) <= LARGEST:
            large = number is not None and math.isfinite(number)
            wrong = "which is more than float32 holds" if large else "which is no finite number"
            text = f"the reward `{reward.name}` gave {values[place]!r} for completion {place}, {wrong}"
            raise RunError(Problem(text, key=reward.option))
    return [number for number in found if number is not None]


def _number(value: Any) -> float | None:
    """The value as a number; None for what is none, text that reads like one among it."""
    try:
        return None if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last one from tensors of several numbers
        return None


def _length(values: Any) -> int | None:
    """How many values there are, in a sequence or an array; None for anything else."""
    ordered = isinstance(values, Sequence) or hasattr(values, "__array__")
    if not ordered or isinstance(values, str | bytes):
        return None
    try:
        return len(values)
    except TypeError:  # an array without dimensions
        return None


def _size(values: Any) -> str:
    length = _length(values)
    if length is not None:
        return f"{length} value{'s' * (length != 1)}"
    return "nothing" if values is None else f"a {type(values).__name__}"


def _listed(offered: Mapping[str, Any]) -> str:
    return "there are " + ", ".join(f"`{name}`" for name in offered) if offered else "no plugin brings one"
