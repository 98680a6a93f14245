"""`DPOConfig`, `KTOConfig` and `RewardConfig`: trainers on given completions that compare."""

from __future__ import annotations

from typing import Final

from memcfg_migrate.becomes import carry, learning, there, to
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Arg, Said
from memcfg_migrate.trl.shared import (
    carry_precomputed,
    carry_reference,
    common,
    pad_token,
    precomputed,
    reference,
    router,
    rows,
    tokens,
)

REMOVED: Final = (
    "removed from TRL: filter or pre-truncate the data set; `max_length` bounds prompt and completion together"
)
UNREAD: Final = "not read: the loss of this trainer has no label smoothing of that kind"
SMOOTHED: Final = ("robust", "exo_pair", "aot", "aot_unpaired")
"""Losses of TRL that read `label_smoothing`."""


def lengths() -> list[Arg]:
    return [
        Arg("max_length", "int?", 1024, to("truncation.max_length")),
        Arg("max_prompt_length", "int?", None, learning(REMOVED)),
        Arg("max_completion_length", "int?", None, learning(REMOVED)),
    ]


def dpo_arguments() -> list[Arg]:
    return [
        *common(), *rows(), pad_token(), *lengths(), *reference(), *precomputed(), router(),
        Arg("disable_dropout", "bool", True, to("dpo.disable_dropout")),
        Arg("truncation_mode", "str", "keep_start"),
        Arg("padding_free", "bool", False),
        Arg("loss_type", "names", ["sigmoid"]), Arg("loss_weights", "numbers?", None),
        Arg("ld_alpha", "float?", None, to("dpo.ld_alpha")),
        Arg("f_divergence_type", "str", "reverse_kl", to("dpo.f_divergence")),
        Arg("f_alpha_divergence_coef", "float", 0.5),
        Arg("label_smoothing", "float", 0.0),
        Arg("beta", "float", 0.1, to("dpo.beta")),
        Arg("use_weighting", "bool", False, to("dpo.weighting")),
        Arg("discopop_tau", "float", 0.05),
        Arg("reference_free", "bool", False, learning("removed from TRL; a reference is always compared with")),
        Arg("label_smoothing_factor", "float", 0.0, there(UNREAD)),
    ]  # fmt: skip


def dpo_own(said: Said, out: Outcome) -> None:
    losses = _losses(said, out)
    carry_reference(said, out)
    carry_precomputed(said, out)
    if said["max_length"] is not None:
        carry(said, "truncation_mode", out, "truncation.mode", said["truncation_mode"])
    elif "truncation_mode" in said:
        out.remark("there", said.text("truncation_mode"), "not read, because no `max_length` is set")
    if said["padding_free"]:
        out.remark("there", said.text("padding_free"), "accepted, and switched off with a log line; here it works")
        out.carry("padding_free.enabled", True, said.text("padding_free"))
    _smoothing(said, out, losses)
    _only_for(said, out, "f_alpha_divergence_coef", "dpo.f_alpha", said["f_divergence_type"] == "alpha_divergence")
    _only_for(said, out, "discopop_tau", "dpo.discopop_tau", "discopop" in losses)


def _losses(said: Said, out: Outcome) -> list[str]:
    losses, weights = said["loss_type"], said["loss_weights"]
    if weights is not None and len(weights) != len(losses):
        out.remark("there", said.text("loss_weights"), f"refused: {len(weights)} weights for {len(losses)} losses")
        weights = None
    if len(losses) == 1 and weights in (None, [1], [1.0]):
        out.carry("dpo.loss", losses[0], said.text("loss_type"), "loss_type" in said)
    else:
        shares = dict(zip(losses, map(float, weights or [1.0] * len(losses)), strict=True))
        text = said.text("loss_type") + (f", {said.text('loss_weights')}" if weights else "")
        out.carry("dpo.loss", "mixture", text)
        out.carry("dpo.mixture", shares, text)
    if "sft" in losses and (len(losses) > 1):
        out.remark(
            "differs", "`sft` among the losses", "every pair counts alike here, in TRL every token of a micro-batch"
        )
    return losses


def _smoothing(said: Said, out: Outcome, losses: list[str]) -> None:
    share = said["label_smoothing"]
    if any(loss in SMOOTHED for loss in losses):
        carry(said, "label_smoothing", out, "dpo.label_smoothing", share)
        if "exo_pair" in losses and share == 0:
            out.remark("there", said.text("label_smoothing"), "`exo_pair` takes its logarithm, and refuses 0")
    elif share:
        text = f"not read by {', '.join(losses)}; memcfg's `sigmoid` would: append `dpo.label_smoothing={share}` if you want it"
        out.remark("there", said.text("label_smoothing"), text)


def _only_for(said: Said, out: Outcome, name: str, key: str, reads: bool) -> None:
    value = said[name]
    if reads:
        carry(said, name, out, key, value)
    elif name in said:
        out.remark("there", said.text(name), "not read by the losses that are chosen")


def kto_arguments() -> list[Arg]:
    return [
        *common(), *rows(), *lengths(), *reference(), *precomputed(), router(),
        Arg("disable_dropout", "bool", True, to("kto.disable_dropout")),
        Arg("loss_type", "str", "kto", to("kto.loss")),
        Arg("beta", "float", 0.1, to("kto.beta")),
        Arg("desirable_weight", "float", 1.0, to("kto.desirable_weight")),
        Arg("undesirable_weight", "float", 1.0, to("kto.undesirable_weight")),
        Arg("label_smoothing_factor", "float", 0.0, there(UNREAD)),
    ]  # fmt: skip


def kto_own(said: Said, out: Outcome) -> None:
    carry_reference(said, out)
    carry_precomputed(said, out)
    if said["loss_type"] == "kto":
        text = "the divergence is estimated from the rows that share a micro-batch, in any order, instead of fixed neighbours"
        out.remark("differs", said.text("loss_type"), text)
        if said["precompute_ref_log_probs"]:
            text = (
                "precomputing is for `apo_zero_unpaired` here: the other prompts of a micro-batch are not known before"
            )
            out.remark("differs", said.text("precompute_ref_log_probs"), text)


def reward_arguments() -> list[Arg]:
    return [
        *common(), *rows(), *tokens(),
        Arg("max_length", "int?", 1024, to("truncation.max_length")),
        Arg("disable_dropout", "bool", True, to("reward.disable_dropout")),
        Arg("center_rewards_coefficient", "float?", None, to("reward.center_coefficient")),
        Arg("label_smoothing_factor", "float", 0.0, there(UNREAD)),
    ]  # fmt: skip


def reward_own(said: Said, out: Outcome) -> None:
    """Nothing that several arguments decide."""
