"""`GRPOConfig`, `RLOOConfig` and `OnlineDPOConfig`: trainers on completions that the model samples."""

from __future__ import annotations

from typing import Final

from memcfg_migrate.becomes import carry, inert, learning, there, to
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Arg, Said
from memcfg_migrate.trl.preference import UNREAD
from memcfg_migrate.trl.shared import carry_reference, carry_sampler, common, groups, sampling, switch

TUNED: Final = "the loss has no constants of its own here"
SAMPLING_RATIOS: Final = {
    "vllm_importance_sampling_correction": "grpo.correction", "vllm_importance_sampling_mode": "grpo.correction_mode",
    "vllm_importance_sampling_clip_max": "grpo.correction_max", "vllm_importance_sampling_clip_min": "grpo.correction_min",
}  # fmt: skip
ADAPTIVE: Final = {
    "entropy_coef_min": "grpo.entropy_coef_min", "entropy_coef_max": "grpo.entropy_coef_max",
    "entropy_coef_delta": "grpo.entropy_coef_delta", "entropy_target": "grpo.entropy_target",
}  # fmt: skip


def _policy(trainer: str) -> list[Arg]:
    """What the policies of GRPO and RLOO are trained by."""
    return [
        Arg("beta", "float", {"grpo": 0.0, "rloo": 0.05}[trainer], to(f"{trainer}.beta")),
        Arg("num_generations", "int", {"grpo": 8, "rloo": 2}[trainer], to(f"{trainer}.num_generations")),
        Arg("num_generations_eval", "int?", None, to(f"{trainer}.num_generations_eval")),
        Arg("num_iterations", "int", 1, to(f"{trainer}.num_iterations")),
        Arg("epsilon", "float", 0.2, to(f"{trainer}.epsilon")),
        Arg("epsilon_high", "float?", None, to(f"{trainer}.epsilon_high")),
        switch("mask_truncated_completions", f"{trainer}.mask_truncated", False),
        switch("disable_dropout", f"{trainer}.disable_dropout", False),
        switch("shuffle_dataset", f"{trainer}.shuffle", True),
        Arg("label_smoothing_factor", "float", 0.0, there(UNREAD)),
    ]


def grpo_arguments() -> list[Arg]:
    return [
        *common(), *groups(), *_policy("grpo"),
        switch("cast_lm_head_to_fp32", "grpo.head_fp32", False),
        Arg("delta", "float?", None, to("grpo.delta")),
        Arg("importance_sampling_level", "str", "token", to("grpo.importance_level")),
        Arg("multi_objective_aggregation", "str", "sum_then_normalize", learning("rewards are summed, then normalised")),
        Arg("scale_rewards", "any", "group", to("grpo.scale_rewards", {
            "group": "group", "batch": "batch", "none": "none", True: "group", False: "none",
        })),
        Arg("loss_type", "str", "dapo", to("grpo.loss")),
        Arg("top_entropy_quantile", "float", 1.0, to("grpo.top_entropy_quantile")),
        Arg("entropy_coef", "float", 0.0, to("grpo.entropy_coef")),
        switch("use_adaptive_entropy", "grpo.entropy_adaptive", False),
        Arg("entropy_coef_min", "float", 0.0), Arg("entropy_coef_max", "float", 1.0),
        Arg("entropy_coef_delta", "float", 0.005), Arg("entropy_target", "float", 0.2),
        Arg("max_tool_calling_iterations", "int?", None, learning("completions call no tools")),
        Arg("vllm_importance_sampling_correction", "bool", True),
        Arg("vllm_importance_sampling_mode", "str", "sequence_mask"),
        Arg("vllm_importance_sampling_clip_max", "float?", 3.0), Arg("vllm_importance_sampling_clip_min", "float?", None),
        Arg("vllm_importance_sampling_cap", "float?", None),
        Arg("off_policy_mask_threshold", "float?", None, to("grpo.off_policy_threshold")),
        switch("use_bias_correction_kl", "grpo.kl_correction", True),
        *(Arg(n, "float", d, learning(TUNED)) for n, d in (
            ("sapo_temperature_neg", 1.05), ("sapo_temperature_pos", 1.0), ("vespo_k_pos", 2.0), ("vespo_lambda_pos", 3.0),
            ("vespo_k_neg", 3.0), ("vespo_lambda_neg", 2.0),
        )),
    ]  # fmt: skip


def grpo_own(said: Said, out: Outcome) -> None:
    carry_sampler(said, out)
    carry_reference(said, out)
    _rewards(said, out)
    _ratios(said, out)
    for name, key in ADAPTIVE.items():
        if said["use_adaptive_entropy"]:
            carry(said, name, out, key, said[name])
        elif name in said:
            out.remark("there", said.text(name), "not read, because `use_adaptive_entropy` is false")


def _ratios(said: Said, out: Outcome) -> None:
    """vLLM's probabilities and their correction."""
    cap = said["vllm_importance_sampling_cap"]
    for name, key in SAMPLING_RATIOS.items():
        value = said[name]
        if said["use_vllm"] and (said["vllm_importance_sampling_correction"] or name.endswith("_correction")):
            carry(said, name, out, key, value)
        elif name in said:
            out.remark("there", said.text(name), "not read: nothing is corrected")
    if cap is not None:
        out.remark(
            "there", said.text("vllm_importance_sampling_cap"), "an old name of `vllm_importance_sampling_clip_max`"
        )
        if said["use_vllm"]:
            out.carry("grpo.correction_max", cap, said.text("vllm_importance_sampling_cap"))


def _rewards(said: Said, out: Outcome) -> None:
    """Rewards are functions, which a config cannot hold."""
    if (weights := said["reward_weights"]) is not None:
        out.carry("rewards.weights", weights, said.text("reward_weights"))
    text = (
        "functions are not read: name them with `rewards.functions=[module:function] rewards.trust_code=true`, "
        "folders of models with `rewards.models=[FOLDER]`"
    )
    out.remark("open", "the rewards", text)


def rloo_arguments() -> list[Arg]:
    return [
        *common(), *groups(), *_policy("rloo"),
        switch("normalize_advantages", "rloo.normalize_advantages", False),
        Arg("reward_clip_range", "list?", None, to("rloo.reward_clip")),
    ]  # fmt: skip


def rloo_own(said: Said, out: Outcome) -> None:
    carry_sampler(said, out)
    carry_reference(said, out)
    _rewards(said, out)


def online_dpo_arguments() -> list[Arg]:
    return [
        *common(), *sampling(temperature=0.9, vllm_gpu_memory_utilization=0.55),
        Arg("reward_model_path", "str?", None, learning("rewards are named with `rewards.functions`")),
        Arg("max_new_tokens", "int", 64, to("generation.max_new_tokens")),
        Arg("max_length", "int?", 512, to("truncation.max_length")),
        Arg("missing_eos_penalty", "float?", None, to("online_dpo.missing_eos_penalty")),
        Arg("beta", "any", [0.1]),
        Arg("loss_type", "str", "sigmoid", to("online_dpo.loss")),
        Arg("disable_dropout", "bool", True, to("online_dpo.disable_dropout")),
        Arg("label_smoothing_factor", "float", 0.0, there(UNREAD)),
        *inert("all columns of a row are handed to the rewards", remove_unused_columns=False),
    ]  # fmt: skip


def online_dpo_own(said: Said, out: Outcome) -> None:
    carry_sampler(said, out)
    _rewards(said, out)
    beta = said["beta"]
    betas = beta if isinstance(beta, list) else [beta]
    if len(betas) == 1:
        out.carry("online_dpo.beta", betas[0], said.text("beta"), "beta" in said)
    else:
        out.remark("learning", said.text("beta"), "`online_dpo.beta` is one number for the whole run")
