"""Arguments that TRL's trainers share among each other."""

from __future__ import annotations

from typing import Any, Final

from memcfg_migrate.becomes import around, carry, inert, learning, other, to
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Arg, Said

TRUST: Final = "trust_remote_code"
TEMPLATE: Final = "the tokenizer's own end-of-text and padding tokens are used: change them in the tokenizer's folder"


def padding() -> Arg:
    return Arg("pad_to_multiple_of", "any", "auto", _padding)


def _padding(said: Said, name: str, out: Outcome) -> None:
    value = said[name]
    if value in ("auto", None, "none", "null"):
        return  # only Neuron devices pad by themselves
    try:
        out.carry("padding.multiple_of", int(value), said.text(name))
    except (TypeError, ValueError, OverflowError):
        out.remark("there", said.text(name), "refused: it is a whole number, `auto` or `none`")


def router() -> Arg:
    return Arg("router_aux_loss_coef", "float?", None, _router)


def _router(said: Said, name: str, out: Outcome) -> None:
    value = said[name]
    if value == 0:
        out.carry("moe.aux", False, said.text(name))
    elif value is not None:
        out.carry("moe.aux", True, said.text(name))
        out.carry("moe.aux_coef", value, said.text(name))


def common() -> list[Arg]:
    """What every trainer has on top of `TrainingArguments`."""
    return [Arg("model_init_kwargs", "dict?", None), Arg(TRUST, "bool", False)]


def rows() -> list[Arg]:
    """What trainers on given completions share."""
    return [
        padding(),
        Arg("dataset_num_proc", "int?", None, to("data.num_proc")),
        Arg("activation_offloading", "bool", False, to("offload.activations", {True: "all", False: "none"})),
    ]


def pad_token() -> Arg:
    return Arg("pad_token", "str?", None, learning(TEMPLATE))


def tokens() -> list[Arg]:
    return [
        pad_token(),
        Arg("eos_token", "str?", None, learning(TEMPLATE)),
        Arg("chat_template_path", "str?", None, to("data.chat_template")),
    ]


def reference() -> list[Arg]:
    """A frozen model beside the policy that may follow it."""
    return [
        Arg("sync_ref_model", "bool", False),
        Arg("ref_model_mixup_alpha", "float", 0.6),
        Arg("ref_model_sync_steps", "int", 512),
    ]


def carry_reference(said: Said, out: Outcome) -> None:
    follows = said["sync_ref_model"]
    if follows:
        out.carry("reference.sync", True, said.text("sync_ref_model"))
    for name, key in (("ref_model_mixup_alpha", "reference.mixup"), ("ref_model_sync_steps", "reference.sync_steps")):
        if follows:
            carry(said, name, out, key, said[name])
        elif name in said:
            out.remark("there", said.text(name), "not read, because `sync_ref_model` is false")


def precomputed() -> list[Arg]:
    return [Arg("precompute_ref_log_probs", "bool", False), Arg("precompute_ref_batch_size", "int?", None)]


def carry_precomputed(said: Said, out: Outcome) -> None:
    size = said["precompute_ref_batch_size"]
    if said["precompute_ref_log_probs"]:
        out.carry("reference.mode", "precompute", said.text("precompute_ref_log_probs"))
        if size is not None:
            out.carry("reference.batch_size", size, said.text("precompute_ref_batch_size"))
    elif size is not None:
        out.remark("there", said.text("precompute_ref_batch_size"), "not read, because nothing is precomputed")


def sampling(**changed: Any) -> list[Arg]:
    """What trainers share that sample completions."""
    found = [
        Arg("temperature", "float", 1.0, to("generation.temperature")),
        Arg("top_p", "float", 1.0, to("generation.top_p")),
        Arg("top_k", "int", 0, to("generation.top_k")),
        Arg("min_p", "float?", None, to("generation.min_p")),
        Arg("repetition_penalty", "float", 1.0, to("generation.repetition_penalty")),
        Arg("cache_implementation", "str?", None, to("generation.cache")),
        Arg("generation_kwargs", "dict?", None, learning("what sampling reads are the options of `generation`")),
        Arg("ds3_gather_for_generation", "bool", True),
        Arg("use_vllm", "bool", False),
        Arg("reward_weights", "list?", None),
        *(Arg(f"vllm_{name}", kind, default) for name, (kind, default, _) in VLLM.items()),
    ]
    return [Arg(a.name, a.kind, changed.get(a.name, a.default), a.becomes) for a in found]


VLLM: Final = {
    "mode": ("str", "colocate", "vllm.mode"),
    "model_impl": ("str", "vllm", "vllm.model_impl"),
    "enable_sleep_mode": ("bool", False, "vllm.sleep"),
    "structured_outputs_regex": ("str?", None, "vllm.structured_regex"),
    "server_base_url": ("str?", None, "vllm.server_url"),
    "server_host": ("str", "0.0.0.0", "vllm.server_host"),
    "server_port": ("int", 8000, "vllm.server_port"),
    "server_timeout": ("float", 240.0, "vllm.server_timeout"),
    "group_port": ("int", 51216, "vllm.group_port"),
    "gpu_memory_utilization": ("float", 0.3, "vllm.gpu_memory_utilization"),
    "max_model_length": ("int?", None, "vllm.max_model_length"),
    "tensor_parallel_size": ("int", 1, "vllm.tensor_parallel"),
}
"""Suffix of the argument: kind, default, option."""
SERVER: Final = ("server_base_url", "server_host", "server_port", "server_timeout", "group_port")
COLOCATED: Final = (
    "enable_sleep_mode",
    "model_impl",
    "gpu_memory_utilization",
    "tensor_parallel_size",
    "max_model_length",
)


def carry_sampler(said: Said, out: Outcome) -> None:
    """vLLM or Transformers, and what only one of them reads."""
    vllm = said["use_vllm"]
    if vllm:
        out.carry("generation.backend", "vllm", said.text("use_vllm"))
    unread = COLOCATED if said["vllm_mode"] == "server" else SERVER
    for suffix, (_, default, key) in VLLM.items():
        name = f"vllm_{suffix}"
        if name not in said.args:
            continue
        value = said[name]
        if vllm and suffix not in unread and (name in said or said.args[name].default != default or suffix == "mode"):
            carry(said, name, out, key, value)
        elif name in said:
            why = f"not read under `vllm_mode={said['vllm_mode']}`" if vllm else "not read, because `use_vllm` is false"
            out.remark("there", said.text(name), why)
    if not said["ds3_gather_for_generation"]:
        out.carry("zero3.gather_for_generation", False, said.text("ds3_gather_for_generation"))


def groups() -> list[Arg]:
    """What GRPO and RLOO share."""
    return [
        *sampling(),
        *reference(),
        router(),
        padding(),
        Arg("max_completion_length", "int", 512, to("generation.max_new_tokens")),
        Arg("generation_batch_size", "int?", None, to("generation.batch_size")),
        Arg("steps_per_generation", "int?", None, to("generation.steps")),
        Arg("use_transformers_continuous_batching", "bool", False, to("generation.continuous_batching")),
        Arg("use_transformers_paged", "bool", False, to("generation.continuous_batching")),
        Arg(
            "transformers_continuous_batching_config", "dict?", None,
            other("`generation.cache_share` is what can be set of continuous batching"),
        ),
        Arg("chat_template_kwargs", "dict?", None, learning("put `chat_template_kwargs` beside the messages of each row")),
        Arg("max_prompt_length", "int?", None, learning("removed from TRL: filter or pre-truncate the data set instead")),
        *around(
            "completions are not logged", log_completions=False, log_multimodal=True, num_completions_to_print=None,
            log_unique_prompts=False, log_completions_hub_repo=None,
        ),
        *inert("all columns of a row are handed to the rewards", remove_unused_columns=False),
    ]  # fmt: skip


def switch(name: str, key: str, default: bool) -> Arg:
    return Arg(name, "bool", default, to(key))
