"""From what a LLaMA-Factory config says to overrides."""

from __future__ import annotations

from typing import Final

from memcfg import Problem, RequestError
from memcfg_migrate import hf, hf_memory
from memcfg_migrate.becomes import carry, rest, translate
from memcfg_migrate.llamafactory.keys import DATA, MODEL, PPO, TUNING
from memcfg_migrate.llamafactory.rows import carry_data
from memcfg_migrate.loading import weights
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Said, Source
from memcfg_migrate.schedule import Length

TRAINERS: Final = {"sft": "sft", "pt": "sft", "dpo": "dpo", "kto": "kto", "rm": "reward"}
ATTENTION: Final = {"fa2": "flash2", "fa3": "flash3", "sdpa": "sdpa", "disabled": "eager"}


def outcome(source: Source, length: Length) -> Outcome:
    """What becomes of it. Raises `RequestError` for a stage that memcfg has no trainer for."""
    mine = (*MODEL, *DATA, *TUNING)
    names = {arg.name for arg in mine}
    args = [*(a for a in hf.arguments() if a.name not in names), *mine]
    said, out = Said(source, args), Outcome("LLaMA-Factory", source.path)
    stage = said["stage"]
    if stage not in TRAINERS:
        text = PPO if stage == "ppo" else f"`{stage}` is no stage"
        fix = f"known are {', '.join(f'`{name}`' for name in TRAINERS)}"
        raise RequestError(Problem(f"{text} ({said.where('stage')})", key="stage", fix=fix))
    out.trainer = TRAINERS[stage]
    out.carry("trainer.name", out.trainer, said.text("stage"))
    counted = carry_data(said, out)
    packs = _packing(said, out, stage)
    most = said["max_samples"]
    if length.rows is None and counted is not None and counted.rows is not None and not packs:
        length = Length(min(counted.rows, most or counted.rows), length.processes, counted.rows_from)
    hf.training(said, out, length)
    _model(said, out)
    _adapter(said, out)
    _memory(said, out)
    _objective(said, out)
    translate(said, out)
    rest(said, out)
    return out


def _model(said: Said, out: Outcome) -> None:
    weights(said, out, "model_name_or_path", "trust_remote_code")
    attention = said["flash_attn"]
    if attention in ATTENTION:
        out.carry("attention.implementation", ATTENTION[attention], said.text("flash_attn"))
    elif attention != "auto":
        out.remark("other", said.text("flash_attn"), "there is no such attention here; memcfg chooses one that fits")
    coefficient = said["moe_aux_loss_coef"]
    if coefficient is not None:
        out.carry("moe.aux", coefficient > 0, said.text("moe_aux_loss_coef"))
        if coefficient > 0:
            out.carry("moe.aux_coef", coefficient, said.text("moe_aux_loss_coef"))


def _packing(said: Said, out: Outcome, stage: str) -> bool:
    packs, neat = said["packing"], said["neat_packing"]
    if packs is None and not neat:
        packs = stage == "pt"
    name = "neat_packing" if neat else "packing" if said["packing"] is not None else "stage"
    if not (packs or neat):
        return False
    if stage == "pt":
        out.carry("packing.strategy", "wrapped", said.text(name))
        return True
    out.carry("packing.strategy", "bfd", said.text(name))
    if neat:
        text = "rows longer than `cutoff_len` are dropped there, and here cut and counted"
    else:
        text = "documents that share a row see each other there without `neat_packing`; here they never do"
    out.remark("differs", said.text(name), text)
    return True


def _adapter(said: Said, out: Outcome) -> None:
    kind, bits = said["finetuning_type"], said["quantization_bit"]
    names = {
        "lora_rank": "peft.rank",
        "lora_dropout": "peft.dropout",
        "use_rslora": "peft.rslora",
        "use_dora": "peft.dora",
    }
    if kind == "lora":
        out.carry("peft.method", "lora", said.text("finetuning_type"))
        for name, key in names.items():
            carry(said, name, out, key, said[name])
        alpha = said["lora_alpha"] or 2 * said["lora_rank"]
        text = said.text("lora_alpha") if said["lora_alpha"] else f"twice {said.text('lora_rank')}"
        out.carry("peft.alpha", alpha, text, "lora_alpha" in said or "lora_rank" in said)
        _targets(said, out)
    else:
        if kind != "full":
            out.remark(
                "learning", said.text("finetuning_type"), "all weights are trained, or an adapter (`peft.method`)"
            )
        for name in (*names, "lora_alpha", "lora_target", "additional_target", "pissa_init", "pissa_iter"):
            if name in said:
                out.remark("there", said.text(name), f"not read under `finetuning_type={kind}`")
    _quantized(said, out, bits)


def _targets(said: Said, out: Outcome) -> None:
    targets = said["lora_target"]
    out.carry(
        "peft.targets", "all-linear" if targets == ["all"] else targets, said.text("lora_target"), "lora_target" in said
    )
    extra = said["additional_target"]
    if extra is not None:
        out.carry("peft.modules_to_save", extra, said.text("additional_target"))
    iterations = said["pissa_iter"]
    if said["pissa_init"]:
        out.carry("peft.config", {"init_lora_weights": f"pissa_niter_{iterations}"}, said.text("pissa_init"))
    elif "pissa_iter" in said:
        out.remark("there", said.text("pissa_iter"), "not read without `pissa_init`")


def _quantized(said: Said, out: Outcome, bits: int | None) -> None:
    method, kind, double = said["quantization_method"], said["quantization_type"], said["double_quantization"]
    if bits is None:
        for name in ("quantization_method", "quantization_type", "double_quantization"):
            if name in said:
                out.remark("there", said.text(name), "not read without `quantization_bit`")
    elif method not in ("bnb", "bitsandbytes") or bits not in (4, 8):
        text = "frozen weights are stored by bitsandbytes, in four bits or eight (`quantization.mode`)"
        out.remark("learning", said.text("quantization_bit" if method == "bnb" else "quantization_method"), text)
    elif bits == 4:
        out.carry("quantization.mode", kind, f"{said.text('quantization_bit')}, {said.text('quantization_type')}")
        carry(said, "double_quantization", out, "quantization.double", double)
    else:
        out.carry("quantization.mode", "int8", said.text("quantization_bit"))


def _memory(said: Said, out: Outcome) -> None:
    off, reentrant = said["disable_gradient_checkpointing"], said["use_reentrant_gc"]
    out.carry("checkpointing.mode", "none" if off else "full", said.text("disable_gradient_checkpointing"), off)
    if not off:
        carry(said, "use_reentrant_gc", out, "checkpointing.reentrant", reentrant)
    if said["use_unsloth_gc"]:
        out.carry("offload.activations", "checkpoint_inputs", said.text("use_unsloth_gc"))
    for name in ("gradient_checkpointing", "activation_checkpointing"):
        if name in said:
            out.remark("there", said.text(name), "not read: `disable_gradient_checkpointing` decides")
        said[name]
        if f"{name}_kwargs" in said:
            out.remark("other", said.text(f"{name}_kwargs"), "checkpointing has no such setting here")
    pure, half = said["pure_bf16"], said["bf16"]
    dtype = "bfloat16" if pure or half else "float16" if said["fp16"] else "float32"
    name = next((n for n in ("pure_bf16", "bf16", "fp16") if said[n]), "bf16")
    out.carry("model.dtype", dtype, said.text(name), dtype != "float32")
    if dtype != "float32" and not pure:
        text = "trained weights are kept in float32 there, and computed in under autocast; `peft.dtype` is the adapter's dtype"
        out.remark("differs", said.text(name), text)
    hf_memory.spread(said, out)


PREFERENCES: Final = ("sigmoid", "hinge", "ipo")


def _objective(said: Said, out: Outcome) -> None:
    trainer = out.trainer
    smoothing = said["label_smoothing_factor"]
    if trainer == "sft":
        carry(said, "label_smoothing_factor", out, "loss.label_smoothing", smoothing)
        if said["train_on_prompt"]:
            out.carry("sft.completion_only", False, said.text("train_on_prompt"))
        if said["use_dft_loss"]:
            out.carry("loss.type", "dft", said.text("use_dft_loss"))
    if trainer in ("dpo", "kto"):
        carry(said, "pref_beta", out, f"{trainer}.beta", said["pref_beta"])
        if said["ref_model"] is not None:
            out.carry("reference.path", said["ref_model"], said.text("ref_model"))
    if trainer == "kto":
        carry(said, "kto_chosen_weight", out, "kto.desirable_weight", said["kto_chosen_weight"])
        carry(said, "kto_rejected_weight", out, "kto.undesirable_weight", said["kto_rejected_weight"])
    if trainer == "dpo":
        _preference(said, out)
    owners = {
        "label_smoothing_factor": "sft", "train_on_prompt": "sft", "use_dft_loss": "sft", "kto_chosen_weight": "kto",
        "kto_rejected_weight": "kto", "pref_loss": "dpo", "pref_ftx": "dpo", "pref_bco_weight": "dpo",
        "dpo_label_smoothing": "dpo", "ld_alpha": "dpo", "pref_beta": "dpo kto", "ref_model": "dpo kto",
    }  # fmt: skip
    for name, owner in owners.items():
        if name in said and trainer not in owner:
            out.remark("there", said.text(name), f"not read under {said.text('stage')}")


def _preference(said: Said, out: Outcome) -> None:
    loss, share, bco = said["pref_loss"], said["pref_ftx"], said["pref_bco_weight"]
    if loss not in PREFERENCES:
        text = (
            "compares without a reference: there is no trainer for it here"
            if loss in ("orpo", "simpo")
            else "is no loss here"
        )
        out.remark("learning", said.text("pref_loss"), text)
    mixed = {name: weight for name, weight in (("sft", share), ("bco_pair", bco)) if weight}
    if mixed and loss in PREFERENCES:
        text = ", ".join(said.text(n) for n in ("pref_loss", "pref_ftx", "pref_bco_weight"))
        out.carry("dpo.loss", "mixture", text)
        out.carry("dpo.mixture", {loss: 1.0, **mixed}, text)
    elif loss in PREFERENCES:
        carry(said, "pref_loss", out, "dpo.loss", loss)
    carry(said, "dpo_label_smoothing", out, "dpo.label_smoothing", said["dpo_label_smoothing"])
    if said["ld_alpha"] is not None:
        out.carry("dpo.ld_alpha", said["ld_alpha"], said.text("ld_alpha"))
