"""What completions are worth: which reward functions a trainer that samples calls, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Check, Default, Plugin, Setting, key, only_when

online = key("trainer.name").isin("grpo", "rloo", "online_dpo")
embedded = key("data.source") == "stdlib"

functions = Setting(
    "rewards.functions", list, default=[], doc="names of reward functions; `module:function` with `rewards.trust_code`"
)
models = Setting(
    "rewards.models", list, default=[], doc="folders of reward models: sequence classifiers with one output"
)
weights = Setting(
    "rewards.weights",
    list,
    default=None,
    nullable=True,
    doc="a weight for each function, then for each model; null is 1 each",
)
trust = Setting("rewards.trust_code", bool, default=False, doc="import the functions that are named by their module")


def _named(values: Mapping[str, Any]) -> str | None:
    if values["rewards.functions"] or values["rewards.models"] or values.get("online_dpo.judge"):
        return None
    return "no reward function is named: add for example `rewards.functions=[finished]`"


def _distinct(values: Mapping[str, Any]) -> str | None:
    given = values["rewards.models"]
    wrong = next((path for path in given if not isinstance(path, str) or not path.strip()), None)
    if wrong is not None:
        return f"`rewards.models` lists {wrong!r}, which is no folder"
    twice = next((path for path in given if given.count(path) > 1), None)
    return None if twice is None else f"`rewards.models` lists `{twice}` twice: give it a larger weight instead"


def _one_judge(values: Mapping[str, Any]) -> str | None:
    judge, given = values["online_dpo.judge"], values["rewards.models"]
    return f"`online_dpo.judge={judge}` judges, so the model `{given[0]}` is not read" if judge and given else None


def _unread(values: Mapping[str, Any]) -> str | None:
    judge, given = values["online_dpo.judge"], values["rewards.functions"]
    proposed = ["kinds"] if values["data.source"] == "stdlib" else []  # what stands there when nobody chose anything
    if not judge or not given or given == proposed:
        return None
    return f"`online_dpo.judge={judge}` judges, so the function `{given[0]}` is not read"


def _unweighed(values: Mapping[str, Any]) -> str | None:
    judge, given = values["online_dpo.judge"], values["rewards.weights"]
    return f"`online_dpo.judge={judge}` judges, so `rewards.weights` is not read" if judge and given else None


def _weighed(values: Mapping[str, Any]) -> str | None:
    functions, models = len(values["rewards.functions"]), len(values["rewards.models"])
    count, given = functions + models, values["rewards.weights"]
    if given is None or (len(given) == count and all(type(w) in (int, float) for w in given)):
        return None
    what = f"the {functions} reward functions" + (f" and {models} reward models" if models else "")
    return f"`rewards.weights={given}` is not one number for each of {what}"


def _trusted(values: Mapping[str, Any]) -> str | None:
    code = [
        name for name in (*values["rewards.functions"], values.get("online_dpo.judge")) if name and ":" in str(name)
    ]
    if values["rewards.trust_code"] or not code:
        return None
    return f"`{code[0]}` is code of its own, which is imported only with `rewards.trust_code=true`"


plugin = Plugin(
    name="rewards",
    doc="reward functions by name",
    options=[functions, models, weights, trust],
    rules=[
        Default(
            functions, ["kinds"], when=online & embedded, id="rewards.functions.stdlib",
            because="the embedded prompts ask for characters of a kind, and this counts them",
        ),
        Default(
            key("data.eval_rows"), 32, when=online & embedded, id="rewards.data.eval_rows",
            because="every prompt held out is completed several times at each evaluation",
        ),
        Check(
            [functions, models, "online_dpo.judge"], _named, when=online, id="rewards.functions.needed",
            because="completions must be worth something", suggest=["rewards.functions=[finished]"],
        ),
        Check(
            [functions, "online_dpo.judge", trust], _trusted, when=online, id="rewards.trust_code.needed",
            because="code runs only where you say so",
        ),
        Check(
            [functions, models, weights], _weighed, when=online, id="rewards.weights.each",
            because="the reward is the weighted sum of the functions'",
        ),
        Check(
            [models], _distinct, when=online, id="rewards.models.distinct",
            because="each is loaded once, beside the policy",
        ),
        Check(
            [models, "online_dpo.judge"], _one_judge, when=key("trainer.name") == "online_dpo", id="rewards.models.judge",
            because="a pairwise judge stands in for rewards",
        ),
        Check(
            [functions, "online_dpo.judge", "data.source"], _unread, when=key("trainer.name") == "online_dpo",
            id="rewards.functions.judge", because="a pairwise judge stands in for rewards",
        ),
        Check(
            [weights, "online_dpo.judge"], _unweighed, when=key("trainer.name") == "online_dpo",
            id="rewards.weights.judge", because="a pairwise judge stands in for rewards",
        ),
        *only_when(online, functions, models, weights, trust, because="this trainer rewards no completions"),
    ],
    groups={"rewards": "what completions are worth"},
    hooks="memcfg_rewards.hooks",
    preflight="memcfg_rewards.folders:look",
    active=online,
)  # fmt: skip
