"""Which trainers there are, and which arguments each reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from memcfg_migrate import hf
from memcfg_migrate.becomes import inert, learning, other, to
from memcfg_migrate.loading import BITS_AND_BYTES, FROM_PRETRAINED, LOAD_DATASET, LORA, REVISION
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Arg, Said
from memcfg_migrate.trl import online, preference, sft


@dataclass(frozen=True)
class Trainer:
    """`config` and `trainer`: TRL's classes. `changed`: defaults of `TrainingArguments` that it has otherwise. `rare`:
    in a file that names no trainer it is considered only if an argument of its own is there."""

    name: str
    config: str
    trainer: str
    arguments: Callable[[], list[Arg]]
    own: Callable[[Said, Outcome], None]
    changed: dict[str, Any] = field(default_factory=dict)
    rare: bool = False

    def args(self, plain: bool = False) -> list[Arg]:
        """Its config's arguments. `plain`: with the defaults of `TrainingArguments`, which may stand in for it."""
        base = hf.arguments(**({} if plain else {**BASE, **self.changed}))
        own = self.arguments()
        mine = {a.name for a in own}
        return [*(a for a in base if a.name not in mine), *own]


BASE: Final = {"logging_steps": 10, "gradient_checkpointing": True, "bf16": None}
"""What TRL's configs have otherwise than `TrainingArguments`."""

TRAINERS: Final = {
    t.name: t
    for t in (
        Trainer("sft", "SFTConfig", "SFTTrainer", sft.arguments, sft.own, {"learning_rate": 2e-5}),
        Trainer("dpo", "DPOConfig", "DPOTrainer", preference.dpo_arguments, preference.dpo_own, {"learning_rate": 1e-6}),
        Trainer(
            "kto", "KTOConfig", "KTOTrainer", preference.kto_arguments, preference.kto_own,
            {"learning_rate": 1e-6, "train_sampling_strategy": "sequential"},
        ),
        Trainer(
            "reward", "RewardConfig", "RewardTrainer", preference.reward_arguments, preference.reward_own,
            {"learning_rate": 1e-4},
        ),
        Trainer("grpo", "GRPOConfig", "GRPOTrainer", online.grpo_arguments, online.grpo_own, {"learning_rate": 1e-6}),
        Trainer("rloo", "RLOOConfig", "RLOOTrainer", online.rloo_arguments, online.rloo_own, {"learning_rate": 1e-6}),
        Trainer("gkd", "GKDConfig", "GKDTrainer", sft.gkd_arguments, sft.gkd_own, {"learning_rate": 2e-5}, True),
        Trainer(
            "online_dpo", "OnlineDPOConfig", "OnlineDPOTrainer", online.online_dpo_arguments, online.online_dpo_own,
            {"learning_rate": 5e-7}, True,
        ),
    )
}  # fmt: skip

MODEL: Final = (
    Arg("model_name_or_path", "str?", None),
    Arg("model_revision", "str?", "main", learning(REVISION)),
    Arg("dtype", "str?", None),
    Arg("torch_dtype", "str?", None),
    Arg("attn_implementation", "str?", None),
    Arg("use_peft", "bool", False),
    Arg("lora_r", "int", 16),
    Arg("lora_alpha", "int", 32),
    Arg("lora_dropout", "float", 0.05),
    Arg("lora_target_modules", "any", None),
    Arg("lora_modules_to_save", "list?", None),
    Arg("lora_target_parameters", "list?", None),
    Arg("lora_task_type", "str", "CAUSAL_LM"),
    Arg("use_rslora", "bool", False),
    Arg("use_dora", "bool", False),
    Arg("load_in_8bit", "bool", False),
    Arg("load_in_4bit", "bool", False),
    Arg("bnb_4bit_quant_type", "str", "nf4"),
    Arg("use_bnb_nested_quant", "bool", False),
    Arg("bnb_4bit_quant_storage", "str?", None),
)
"""`ModelConfig`, which TRL's own scripts read."""

SCRIPT: Final = (
    Arg("dataset_name", "str?", None),
    Arg("dataset_config", "str?", None),
    Arg("dataset_train_split", "str", "train"),
    Arg("dataset_test_split", "str", "test"),
    Arg("dataset_streaming", "bool", False, to("data.streaming")),
    Arg("datasets", "list", []),
    Arg("streaming", "bool", False, to("data.streaming")),
    Arg("test_split_size", "float?", None, learning("rows are held out by their number: append `data.eval_rows=N`")),
    Arg("env", "any", None, other("set it in the shell")),
    *inert("nothing here depends on it", ignore_bias_buffers=False),
)  # fmt: skip
"""`ScriptArguments` and `DatasetMixtureConfig`."""

CALL: Final = (
    Arg("Trainer.ref_model", "str?", None, to("reference.path")),
    Arg("Trainer.teacher_model", "str?", None, to("gkd.teacher")),
    *(
        Arg(f"Trainer.{name}", "any", None, learning(text))
        for name, text in {
            "data_collator": "the trainer's own collator is used", "formatting_func": "put the formatted text into the rows",
            "compute_loss_func": "a loss is a plugin: see `docs/plugins.md`", "compute_metrics": "held-out rows are "
            "evaluated by the training loss", "optimizers": "`optimizer.name` and `run.scheduler` make both",
            "optimizer_cls_and_kwargs": "`optimizer.name` makes it", "callbacks": "nothing is called while training",
            "rollout_func": "completions are sampled by `generation.backend`", "tools": "completions call no tools",
            "judge": "`online_dpo.judge` names one", "preprocess_logits_for_metrics": "logits are never held",
        }.items()
    ),
    *inert("the model's own tokenizer is loaded", **{"Trainer.processing_class": None, "Trainer.tokenizer": None}),
    *inert("rewards are named in the config", **{
        "Trainer.reward_funcs": None, "Trainer.reward_processing_classes": None, "Trainer.reward_model": None,
    }),
)  # fmt: skip
"""What is handed to a trainer beside its config."""

BESIDE: Final = (*FROM_PRETRAINED, *LORA, *BITS_AND_BYTES, *LOAD_DATASET, *CALL)
