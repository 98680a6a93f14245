"""The frozen reference that preference and online trainers compare the policy with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memcfg import Bool, Check, Default, Enum, Forbid, Ignored, Plugin, Setting, key, only_when

trainer = key("trainer.name")
compares = trainer.isin("dpo", "kto", "grpo", "rloo", "online_dpo")
adapts = key("peft.method") != "none"

mode = Enum(
    "reference.mode",
    ("live", "precompute", "adapter"),
    open=True,
    doc="a second model; its log-probabilities computed once; or the model with its adapter switched off",
)
path = Setting(
    "reference.path", str, default=None, nullable=True, doc="folder or hub name; null is the model before training"
)
batch = Setting(
    "reference.batch_size", int, default=None, nullable=True, minimum=1, unit="rows",
    doc="rows at a time while precomputing; null takes `run.batch_size`",
)  # fmt: skip
sync = Bool("reference.sync", doc="let the reference follow the policy")
mixup = Setting(
    "reference.mixup",
    float,
    default=0.6,
    minimum=0.0,
    maximum=1.0,
    doc="share of the policy in a reference that follows",
)
steps = Setting(
    "reference.sync_steps", int, default=512, minimum=1, unit="steps", doc="steps between two moves of the reference"
)


def _compared(name: str) -> Callable[[Mapping[str, Any]], str | None]:
    def test(values: Mapping[str, Any]) -> str | None:
        return f"`{name}=0.0` compares with no reference, so none can follow the policy" if values[name] == 0 else None

    return test


def _of_its_own(values: Mapping[str, Any]) -> str | None:
    given = values["reference.path"]
    return f"`{given}` has no adapter that could move with the policy's" if given else None


def _read(name: str) -> Callable[[Mapping[str, Any]], str | None]:
    def test(values: Mapping[str, Any]) -> str | None:
        given = values["reference.path"]
        return (
            f"`{name}=0.0` compares with no reference, so `{given}` is not read" if given and not values[name] else None
        )

    return test


plugin = Plugin(
    name="reference",
    doc="where the reference's log-probabilities come from",
    options=[mode, path, batch, sync, mixup, steps],
    rules=[
        Default(
            mode, "live", when=compares, id="reference.mode.default",
            because="the model before training, where a run compares with it, is kept beside the trained one",
        ),
        Default(
            mode, "adapter", "live", when=compares & adapts, id="reference.mode.adapter",
            because="the model with its adapter switched off is the model before training, without a second copy",
        ),
        Default(sync, False, when=compares, id="reference.sync.default", because="the reference stays where it started"),
        Forbid(
            (mode == "adapter") & ~adapts, id="reference.adapter.needed",
            because="there is no adapter to switch off when the whole model is trained",
            suggest=["reference.mode=live", "peft.method=lora"],
        ),
        Forbid(
            (mode == "precompute") & trainer.isin("grpo", "rloo", "online_dpo"), id="reference.precompute.offline",
            because="completions sampled while training cannot be scored before it",
            suggest=["reference.mode=live"],
        ),
        Forbid(
            sync.on & (mode == "adapter"), id="reference.sync.adapter",
            because="a reference that is the base model itself cannot move without moving the policy",
            suggest=["reference.mode=live", "reference.sync=false"],
        ),
        Forbid(
            sync.on & (mode == "precompute"), id="reference.sync.precompute",
            because="log-probabilities computed before training belong to a reference that stays where it is",
            suggest=["reference.mode=live", "reference.sync=false"],
        ),
        Check(
            [path], _of_its_own, when=sync.on & adapts, id="reference.sync.path",
            because="of a policy with an adapter, the adapter is what a reference follows",
        ),
        Check(
            ["grpo.beta"], _compared("grpo.beta"), when=(trainer == "grpo") & sync.on, id="reference.sync.beta",
            because="without a KL penalty there is no reference",
        ),
        Check(
            ["rloo.beta"], _compared("rloo.beta"), when=(trainer == "rloo") & sync.on, id="reference.sync.beta_rloo",
            because="without a KL penalty there is no reference",
        ),
        Check(
            ["grpo.beta", path], _read("grpo.beta"), when=trainer == "grpo", id="reference.path.beta",
            because="without a KL penalty there is no reference",
        ),
        Check(
            ["rloo.beta", path], _read("rloo.beta"), when=trainer == "rloo", id="reference.path.beta_rloo",
            because="without a KL penalty there is no reference",
        ),
        Ignored(
            path, when=mode == "adapter", id="reference.path.adapter",
            because="the reference is the model itself with its adapter switched off",
        ),
        *only_when(compares, mode, path, sync, because="this trainer has no reference"),
        *only_when(mode == "precompute", batch, because="only `reference.mode=precompute` reads it"),
        *only_when(sync.on, mixup, steps, because="only a reference that follows the policy reads it"),
    ],
    groups={"reference": "where the reference's log-probabilities come from"},
    hooks="memcfg_reference.hooks",
    active=compares,
    allowed={
        "conflict-after-one-choice reference.mode=adapter": "which adapter is trained only the user can say",
    },
)  # fmt: skip
