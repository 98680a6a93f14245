"""The keys of LLaMA-Factory's config that memcfg knows beside those of `TrainingArguments`."""

from __future__ import annotations

from typing import Final

from memcfg_migrate.becomes import around, inert, learning, other, to
from memcfg_migrate.said import Arg

PPO: Final = "there is no trainer for PPO here"
OTHER_WAYS: Final = "all weights are trained, or an adapter (`peft.method`)"
PROJECTED: Final = "no optimizer projects gradients or trains block by block here"
TOKENS: Final = "the tokenizer and its tokens are used as they are: change them in the model's folder"
IMAGES: Final = "rows are text"

MODEL: Final = (
    Arg("model_name_or_path", "str?", None),
    Arg("adapter_name_or_path", "str?", None, learning("an adapter begins anew: merge the old one into the model first")),
    Arg("model_revision", "str", "main", learning("download the version you want and name its folder in `model.path`")),
    Arg("trust_remote_code", "bool", False),
    Arg("flash_attn", "str", "auto"),
    Arg("shift_attn", "bool", False, learning("attention is always whole here")),
    Arg("rope_scaling", "str?", None, learning("change the `config.json` in the model's folder")),
    Arg("mixture_of_depths", "str?", None, learning("layers are never skipped")),
    Arg("use_unsloth", "bool", False, other("`liger=on` brings fused kernels")),
    Arg("use_unsloth_gc", "bool", False),
    Arg("enable_liger_kernel", "bool", False, to("liger.enabled")),
    Arg("use_v1_kernels", "bool?", False, other("`liger=on` brings fused kernels", None)),
    Arg("moe_aux_loss_coef", "float?", None),
    Arg("disable_gradient_checkpointing", "bool", False),
    Arg("use_reentrant_gc", "bool", True),
    Arg("upcast_layernorm", "bool", False, learning("norms are in the dtype of the weights")),
    Arg("upcast_lmhead_output", "bool", False, learning("losses are computed in float32 anyway, products in the weights' dtype")),
    Arg("train_from_scratch", "bool", False, learning("weights are loaded from `model.path`")),
    Arg("resize_vocab", "bool", False, learning(TOKENS)),
    Arg("add_tokens", "any", None, learning(TOKENS)),
    Arg("add_special_tokens", "any", None, learning(TOKENS)),
    Arg("quantization_bit", "int?", None),
    Arg("quantization_method", "str", "bnb"),
    Arg("quantization_type", "str", "nf4"),
    Arg("double_quantization", "bool", True),
    Arg("fp8", "bool", False, learning("there is no eight-bit arithmetic here")),
    *inert(
        "nothing here depends on it", cache_dir=None, use_fast_tokenizer=True, low_cpu_mem_usage=True, use_kv_cache=True,
        quantization_device_map=None, infer_backend="huggingface", infer_dtype="auto", offload_folder="offload",
        hf_hub_token=None, ms_hub_token=None, om_hub_token=None, print_param_status=False, split_special_tokens=False,
    ),
    *(Arg(name, "any", default, learning(IMAGES)) for name, default in {
        "image_max_pixels": 589824, "image_min_pixels": 1024, "video_max_pixels": 65536, "video_maxlen": 128,
        "freeze_vision_tower": True, "freeze_multi_modal_projector": True, "freeze_language_model": False,
    }.items()),
)  # fmt: skip

DATA: Final = (
    Arg("template", "str?", None),
    Arg("dataset", "names?", None),
    Arg("eval_dataset", "names?", None),
    Arg("dataset_dir", "str", "data"),
    Arg("cutoff_len", "int", 2048),
    Arg("train_on_prompt", "bool", False),
    Arg("mask_history", "bool", False, learning("all turns of the assistant are learned, not only the last")),
    Arg("streaming", "bool", False, to("data.streaming")),
    Arg("buffer_size", "int", 16384, other("rows of a stream keep their order")),
    Arg("mix_strategy", "str", "concat", learning("one data set is read")),
    Arg("interleave_probs", "any", None, learning("one data set is read")),
    Arg("preprocessing_num_workers", "int?", None, to("data.num_proc")),
    Arg("max_samples", "int?", None, to("data.limit")),
    Arg("val_size", "float", 0.0),
    Arg("packing", "bool?", None),
    Arg("neat_packing", "bool", False),
    Arg("tool_format", "str?", None, learning("tools are handed to the tokenizer's own template")),
    Arg("ignore_pad_token_for_loss", "bool", True, learning("padding is never learned")),
    Arg("eval_on_each_dataset", "bool", False, learning("one data set is evaluated")),
    *inert(
        "prepared rows are kept in memcfg's cache", overwrite_cache=False, preprocessing_batch_size=1000,
        tokenized_path=None, media_dir=None, eval_num_beams=None,
    ),
)  # fmt: skip

TUNING: Final = (
    Arg("stage", "str", "sft"),
    Arg("finetuning_type", "str", "lora"),
    Arg("lora_rank", "int", 8),
    Arg("lora_alpha", "int?", None),
    Arg("lora_dropout", "float", 0.0),
    Arg("lora_target", "names", ["all"]),
    Arg("additional_target", "names?", None),
    Arg("use_rslora", "bool", False),
    Arg("use_dora", "bool", False),
    Arg("pissa_init", "bool", False),
    Arg("pissa_iter", "int", 16),
    Arg("pissa_convert", "bool", False, other("the adapter is saved as it is, or merged with `peft.merge`")),
    Arg("loraplus_lr_ratio", "float?", None, learning("all weights have one learning rate")),
    Arg("loraplus_lr_embedding", "float", 1e-6, learning("all weights have one learning rate")),
    Arg("create_new_adapter", "bool", False, other("an adapter always begins anew")),
    Arg("pref_beta", "float", 0.1),
    Arg("pref_loss", "str", "sigmoid"),
    Arg("pref_ftx", "float", 0.0),
    Arg("pref_bco_weight", "float", 0.0),
    Arg("dpo_label_smoothing", "float", 0.0),
    Arg("ld_alpha", "float?", None),
    Arg("simpo_gamma", "float", 0.5, learning("there is no SimPO here")),
    Arg("kto_chosen_weight", "float", 1.0),
    Arg("kto_rejected_weight", "float", 1.0),
    Arg("ref_model", "str?", None),
    Arg("ref_model_adapters", "str?", None, learning("merge the reference's adapter into it")),
    Arg("ref_model_quantization_bit", "int?", None, learning("a reference of its own is loaded as the model is")),
    Arg("pure_bf16", "bool", False),
    Arg("use_dft_loss", "bool", False),
    Arg("disable_shuffling", "bool", False, learning("rows are shuffled in every epoch")),
    Arg("early_stopping_steps", "int?", None, learning("a run takes `run.steps` steps")),
    Arg("use_llama_pro", "bool", False, learning(OTHER_WAYS)),
    *(Arg(n, "bool", False, learning(PROJECTED)) for n in ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")),
    *(Arg(n, "any", d, learning(OTHER_WAYS)) for n, d in (
        ("freeze_trainable_layers", 2), ("freeze_trainable_modules", "all"), ("freeze_extra_modules", None),
    )),
    *(Arg(n, "any", d, learning(PPO)) for n, d in (
        ("reward_model", None), ("reward_model_adapters", None), ("reward_model_quantization_bit", None),
        ("reward_model_type", "lora"), ("ppo_buffer_size", 1), ("ppo_epochs", 4), ("ppo_score_norm", False),
        ("ppo_target", 6.0), ("ppo_whiten_rewards", False),
    )),
    *(Arg(n, "any", d, learning(PROJECTED)) for n, d in (
        ("galore_target", "all"), ("galore_rank", 16), ("galore_update_interval", 200), ("galore_scale", 2.0),
        ("galore_layerwise", False), ("apollo_target", "all"), ("apollo_rank", 16), ("apollo_update_interval", 200),
        ("apollo_scale", 32.0), ("badam_mode", "layer"), ("badam_switch_mode", "ascending"), ("badam_switch_interval", 50),
        ("badam_update_ratio", 0.05),
    )),
    *around(
        "a run writes `metrics.jsonl` and its own summary", plot_loss=False, compute_accuracy=False, use_swanlab=False,
        swanlab_project="llamafactory", swanlab_run_name=None, include_effective_tokens_per_second=False,
    ),
    *around(
        "completions are sampled by online trainers only", predict_with_generate=False, do_sample=True, temperature=0.95,
        top_p=0.7, top_k=50, num_beams=1, max_length=1024, max_new_tokens=1024, repetition_penalty=1.0,
        generation_max_length=None, generation_num_beams=None,
    ),
)  # fmt: skip
