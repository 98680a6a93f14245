"""Adapters, quantised weights, checkpointing, packing, attention and kernels of an axolotl config."""

from __future__ import annotations

from typing import Final

from memcfg_migrate import hf_memory, loading
from memcfg_migrate.becomes import carry
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Said

ATTENTION: Final = {
    "flash_attention": "flash2",
    "sdp_attention": "sdpa",
    "flex_attention": "flex",
    "eager_attention": "eager",
}


def carry_adapter(said: Said, out: Outcome) -> None:
    adapter, four, eight = said["adapter"], said["load_in_4bit"], said["load_in_8bit"]
    names = {
        "lora_r": "peft.rank", "lora_alpha": "peft.alpha", "lora_dropout": "peft.dropout",
        "lora_modules_to_save": "peft.modules_to_save", "peft_use_dora": "peft.dora", "peft_use_rslora": "peft.rslora",
    }  # fmt: skip
    targets = "lora_target_linear" if said["lora_target_linear"] else "lora_target_modules"
    further = {
        "lora_fan_in_fan_out": "fan_in_fan_out", "peft_layers_to_transform": "layers_to_transform",
        "peft_layers_pattern": "layers_pattern", "peft_init_lora_weights": "init_lora_weights",
    }  # fmt: skip
    if adapter not in ("lora", "qlora"):
        kind = "learning" if adapter else "there"
        text = "there is no such adapter here" if adapter else "not read without an `adapter`"
        for name in ("adapter", "load_in_4bit", "load_in_8bit", targets, *names, *further):
            if name in said and said[name] not in (False, None):
                out.remark(kind, said.text(name), text)
        return
    out.carry("peft.method", "lora", said.text("adapter"))
    for name, key in names.items():
        if said[name] is not None:
            carry(said, name, out, key, said[name])
    modules = said["lora_target_modules"]
    out.carry(
        "peft.targets",
        "all-linear" if targets == "lora_target_linear" else modules,
        said.text(targets),
        targets in said,
    )
    given = {theirs: said[ours] for ours, theirs in further.items() if said[ours] is not None}
    if given:
        out.carry("peft.config", given, ", ".join(said.text(n) for n in further if n in said))
    _quantized(said, out, bool(four), bool(eight))


def _quantized(said: Said, out: Outcome, four: bool, eight: bool) -> None:
    if said["adapter"] == "qlora" and not four:
        out.remark("there", said.text("adapter"), "refused without `load_in_4bit`")
    if four:
        out.carry("quantization.mode", "nf4", said.text("load_in_4bit"))
        out.carry("quantization.double", True, "what axolotl does under `load_in_4bit`")
        out.carry("quantization.storage", "bfloat16", "what axolotl does under `load_in_4bit`")
    elif eight:
        out.carry("quantization.mode", "int8", said.text("load_in_8bit"))


def carry_memory(said: Said, out: Outcome) -> None:
    _checkpointing(said, out)
    packs = bool(said["sample_packing"])
    if packs:
        out.carry("packing.strategy", "bfd", said.text("sample_packing"))
        if said["eval_sample_packing"] is not None:
            carry(said, "eval_sample_packing", out, "packing.eval", said["eval_sample_packing"])
        if not any(said[n] for n in ATTENTION) and said["attn_implementation"] is None:
            out.remark(
                "there", said.text("sample_packing"), "documents see each other without flash, sdp or flex attention"
            )
    elif said["eval_sample_packing"]:
        out.remark(
            "learning", said.text("eval_sample_packing"), "evaluation rows are packed only where training rows are"
        )
    if said["batch_flattening"]:
        out.carry("padding_free.enabled", True, said.text("batch_flattening"))
    for name, implementation in ATTENTION.items():
        if said[name]:
            out.carry("attention.implementation", implementation, said.text(name))
    if (given := said["attn_implementation"]) is not None:
        found = loading.ATTENTION.get(given)
        if found is None:
            out.remark("other", said.text("attn_implementation"), "there is no such attention here; memcfg chooses one")
        else:
            out.carry("attention.implementation", found, said.text("attn_implementation"))
    hf_memory.spread(said, out)
    if said["fsdp_version"] is not None:
        out.carry("distributed.strategy", "fsdp2", said.text("fsdp_version"))


def _checkpointing(said: Said, out: Outcome) -> None:
    on, kwargs = said["gradient_checkpointing"], dict(said["gradient_checkpointing_kwargs"] or {})
    offload = said["activation_offloading"]
    out.carry("checkpointing.mode", "full" if on else "none", said.text("gradient_checkpointing"), bool(on))
    if "use_reentrant" in kwargs and on:
        text = said.text("gradient_checkpointing_kwargs")
        out.carry("checkpointing.reentrant", bool(kwargs.pop("use_reentrant")), text)
    if kwargs:
        out.remark("other", said.text("gradient_checkpointing_kwargs"), "checkpointing has no such setting here")
    if on in ("offload", "unsloth"):
        out.carry("offload.activations", "checkpoint_inputs", said.text("gradient_checkpointing"))
    elif on == "offload_disk" or offload == "disk":
        out.carry("offload.activations", "disk", said.text("activation_offloading"))
    elif offload:
        kind = "checkpoint_inputs" if on else "all"
        out.carry("offload.activations", kind, said.text("activation_offloading"))


def carry_kernels(said: Said, out: Outcome) -> None:
    liger = [name for name in said.args if name.startswith("liger_") and said[name]]
    if liger:
        out.carry("liger.enabled", True, ", ".join(map(said.text, liger)))
    if said["tiled_mlp"]:
        out.carry("mlp.mode", "tiled", said.text("tiled_mlp"))
    if said["cut_cross_entropy"]:
        out.carry("loss.kernel", "cce", said.text("cut_cross_entropy"))
    for name in said["plugins"] or ():
        known = str(name).startswith(("axolotl.integrations.liger", "axolotl.integrations.cut_cross_entropy"))
        if not known:
            out.remark(
                "learning", f"`plugins` ({said.where('plugins')})", f"`{name}` is a plugin of axolotl, not of memcfg"
            )
        else:
            said.text("plugins")
