"""A config of TRL in, overrides and remarks out. `given` is YAML; `then` are overrides, in their order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from memcfg_migrate.plan import migrate, worded
from memcfg_migrate.schedule import Length
from memcfg_migrate.trl.read import source
from memcfg_migrate.trl.trainers import BESIDE, MODEL, SCRIPT, TRAINERS
from memcfg_migrate.trl.translate import FORGOTTEN, outcome

from memcfg.registry import load

QUIET = {"run.seed=42", "run.save_steps=500", "run.batch_size=8"}
"""What TRL's defaults add to every run."""


@pytest.fixture
def migrated(tmp_path: Path):
    """`migrated("packing: true", "sft")`: the migration of a YAML file."""

    def run(text: str, trainer: str | None = None, length: Length | None = None, more: tuple[str, ...] | None = None):
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        found = outcome(source(path, trainer), trainer, length or Length(rows=80))
        return worded(found, load()) if more is None else migrate(found, more, load(), None)

    return run


HUB = "model_name_or_path: org/model\ndataset_name: org/rows\n"
BASE = {"model=hub", "model.path=org/model", "data=hub", "data.path=org/rows"} | QUIET

OVERRIDES = [
    # trainer, given, then (beside what every run has), because
    ("sft", "", {"run.steps=30"}, "three epochs of ten steps are TRL's default"),
    ("sft", "num_train_epochs: 0.25", {"run.steps=3"}, "a part of an epoch is rounded up"),
    ("sft", "max_steps: 7\nnum_train_epochs: 2", {"run.steps=7"}, "max_steps counts"),
    ("sft", "gradient_accumulation_steps: 3", {"run.accumulation=3", "run.steps=12"}, "the last step is short"),
    ("sft", "learning_rate: 2e-5", {"run.steps=30"}, "both take this by themselves"),
    ("sft", "learning_rate: 1e-4", {"run.steps=30", "run.learning_rate=0.0001"}, "YAML reads 1e-4 as a word"),
    ("sft", "max_grad_norm: 0", {"run.steps=30", "run.max_grad_norm=null"}, "zero means that nothing is clipped"),
    ("sft", "warmup_steps: 0.1", {"run.steps=30", "run.warmup_steps=3"}, "below one it is a share"),
    ("sft", "warmup_steps: 3\nlr_scheduler_type: constant", {"run.steps=30", "run.scheduler=constant"}, "it has no warm-up"),
    ("sft", "save_strategy: 'no'", {"run.steps=30", "run.save_steps=null"}, "what was written is written"),
    ("sft", "save_strategy: epoch", {"run.steps=30", "run.save_steps=10"}, "an epoch has ten steps"),
    ("sft", "eval_strategy: steps\neval_steps: 5", {"run.steps=30", "run.eval_steps=5", "data.eval_split=test"}, ""),
    ("sft", "eval_strategy: steps", {"run.steps=30", "run.eval_steps=10", "data.eval_split=test"}, "as often as is logged"),
    ("sft", "packing: true", {"run.steps=30", "packing=bfd"}, "bfd is TRL's default strategy"),
    ("sft", "packing: true\npacking_strategy: bfd-requeue", {"run.steps=30", "packing=bfd_split"}, "an old name"),
    ("sft", "packing: true\npacking_strategy: wrapped\neval_packing: false",
     {"run.steps=30", "packing=wrapped", "packing.eval=false"}, ""),
    ("sft", "padding_free: true\nmax_length: null",
     {"run.steps=30", "padding_free=on", "truncation.max_length=null"}, ""),
    ("sft", "gradient_checkpointing: false", {"run.steps=30", "checkpointing=none"}, ""),
    ("sft", "gradient_checkpointing_kwargs: {selective: true}", {"run.steps=30", "checkpointing=selective"}, ""),
    ("sft", "pad_to_multiple_of: 64", {"run.steps=30", "padding.multiple_of=64"}, ""),
    ("sft", "loss_type: dft\nassistant_only_loss: true",
     {"run.steps=30", "loss=dft", "sft.assistant_only=true"}, ""),
    ("sft", "loss_type: nll", {"run.steps=30"}, "TRL's fused nll is the default here"),
    ("sft", "optim: adafactor", {"run.steps=30", "optimizer=adafactor"}, "which reads no betas"),
    ("sft", "adam_beta2: 0.95\nweight_decay: 0.1",
     {"run.steps=30", "optimizer.betas=[0.9, 0.95]", "optimizer.weight_decay=0.1"}, ""),
    ("sft", "use_peft: true\nlora_target_modules: [all-linear]",
     {"run.steps=30", "peft=lora", "peft.targets=all-linear"}, "16, 32 and 0.05 are the defaults of both"),
    ("sft", "use_peft: true\nload_in_4bit: true",
     {"run.steps=30", "peft=lora", "quantization=nf4"}, ""),
    ("sft", "dtype: bfloat16\nattn_implementation: eager",
     {"run.steps=30", "model.dtype=bfloat16", "attention=eager"}, ""),
    ("sft", "model_init_kwargs: {dtype: bfloat16, attn_implementation: sdpa}",
     {"run.steps=30", "model.dtype=bfloat16", "attention=sdpa"}, "nested arguments are arguments"),
    ("sft", "report_to: [wandb, tensorboard]\nsave_total_limit: 2",
     {"run.steps=30", "run.report_to=[wandb, tensorboard]", "run.keep_checkpoints=2"}, ""),
    ("sft", "router_aux_loss_coef: 0", {"run.steps=30", "moe.aux=false"}, ""),
    ("dpo", "", {"run.steps=30"}, "DPO's learning rate is stated"),
    ("dpo", "loss_type: [sigmoid, sft]\nloss_weights: [1, 0.5]",
     {"run.steps=30", "dpo.loss=mixture", "dpo.mixture={sigmoid: 1.0, sft: 0.5}"}, ""),
    ("dpo", "loss_type: ipo\nbeta: 0.3\nprecompute_ref_log_probs: true\nprecompute_ref_batch_size: 4",
     {"run.steps=30", "dpo.loss=ipo", "dpo.beta=0.3", "reference=precompute",
      "reference.batch_size=4"}, ""),
    ("dpo", "padding_free: true", {"run.steps=30", "padding_free=on"}, "here it works"),
    ("dpo", "sync_ref_model: true\nref_model_sync_steps: 64",
     {"run.steps=30", "reference.sync=true", "reference.sync_steps=64"}, ""),
    ("dpo", "f_divergence_type: alpha_divergence\nf_alpha_divergence_coef: 0.7",
     {"run.steps=30", "dpo.f_divergence=alpha_divergence", "dpo.f_alpha=0.7"}, ""),
    ("kto", "desirable_weight: 1.5", {"run.steps=30", "kto.desirable_weight=1.5"}, ""),
    ("reward", "center_rewards_coefficient: 0.01",
     {"run.steps=30", "reward.center_coefficient=0.01"}, ""),
    ("rloo", "", {"run.steps=30"}, "the rest is RLOO's own default here too"),
    ("gkd", "lmbda: 0", {"run.steps=30", "gkd.lmbda=0.0"}, "what only SFT reads is not stated"),
]  # fmt: skip


@pytest.mark.parametrize(("trainer", "given", "then", "because"), OVERRIDES)
def test_what_a_config_becomes(migrated, trainer, given, then, because):
    found = migrated(HUB + given, trainer)
    quiet = {"run.save_steps=500"} if "save_strategy" in given else set()
    assert set(found.overrides) == (BASE - quiet) | {f"trainer={trainer}"} | then, because
    assert not found.outcome.problems


REMARKS = [
    # trainer, given, kind, a part of what is said
    ("sft", "neftune_noise_alpha: 5", "learning", "embeddings get no noise here"),
    ("sft", "report_to: comet_ml", "other", "trackers are `tensorboard`, `wandb` and `trackio`"),
    ("sft", "packing_strategy: wrapped", "there", "not read, because `packing` is false"),
    ("sft", "packing: true\npacking_strategy: wrapped", "there", "see each other, without a warning"),
    ("sft", "eval_packing: true", "there", "documents see each other, and nothing says so"),
    ("sft", "padding_free: true", "there", "refused without packing while `max_length=1024` (default); here both hold"),
    ("sft", "label_smoothing_factor: 0.1", "there", "1.10 fails at the first step"),
    ("sft", "lora_r: 8", "there", "not read, because `use_peft` is false"),
    ("sft", "loss_type: nll", "differs", "that is `chunked_nll` here"),
    ("sft", "packing: true\npacking_strategy: bfd_split\ntruncation_mode: keep_end", "there", "packing cuts nothing off"),
    ("sft", "optim: galore_adamw", "learning", "there is no such optimizer here"),
    ("sft", "lr_scheduler_type: cosine_with_restarts", "learning", "`run.scheduler` has no such value"),
    ("sft", "max_steps: 7\nnum_train_epochs: 2", "there", "`max_steps` counts and this does not"),
    ("sft", "eval_steps: 5", "there", "not read under `eval_strategy=no`"),
    ("sft", "load_in_4bit: true\nload_in_8bit: true", "there", "refused: weights have four bits or eight"),
    ("sft", "bf16: true", "differs", "computes in bfloat16 under autocast"),
    ("sft", "model_revision: v1", "learning", "the newest version of a model is taken"),
    ("sft", "save_only_model: true", "other", "the final model always"),
    ("sft", "gradient_checkpointing: false\ngradient_checkpointing_kwargs: {use_reentrant: true}", "there", "checkpointing is off"),
    ("dpo", "padding_free: true", "there", "accepted, and switched off with a log line; here it works"),
    ("dpo", "label_smoothing: 0.1", "there", "not read by sigmoid; memcfg's `sigmoid` would"),
    ("dpo", "max_prompt_length: 512", "learning", "removed from TRL: filter or pre-truncate"),
    ("dpo", "loss_weights: [1, 2]", "there", "refused: 2 weights for 1 losses"),
    ("dpo", "discopop_tau: 0.1", "there", "not read by the losses that are chosen"),
    ("dpo", "gradient_checkpointing_kwargs: {selective: true}", "there", "fails at the first step"),
    ("dpo", "precompute_ref_batch_size: 4", "there", "not read, because nothing is precomputed"),
    ("kto", "ref_model_sync_steps: 4", "there", "not read, because `sync_ref_model` is false"),
    ("kto", "", "differs", ""),
    ("grpo", "", "open", "functions are not read: name them"),
    ("grpo", "vllm_server_port: 9000", "there", "not read, because `use_vllm` is false"),
    ("grpo", "use_vllm: true\nvllm_mode: server\nvllm_enable_sleep_mode: true", "there", "not read under `vllm_mode=server`"),
    ("gkd", "padding_free: true", "there", "its collator is its own"),
]  # fmt: skip


@pytest.mark.parametrize(("trainer", "given", "kind", "said"), REMARKS)
def test_what_is_said_of_a_config(migrated, trainer, given, kind, said):
    remarks = migrated(HUB + given, trainer).outcome.of_kind(kind)
    assert any(said in remark.text for remark in remarks), remarks


NESTED = ("datasets", "model_init_kwargs")
"""Arguments whose own arguments are looked at: they have tests of their own."""

ODD = {
    "int": 3,
    "float": 0.125,
    "bool": None,
    "str": "odd",
    "names": ["x"],
    "list": ["odd"],
    "numbers": [0.5],
    "dict": {"odd": 1},
    "any": "odd",
}


@pytest.mark.parametrize(
    "trainer", [name if name in ("sft", "dpo") else pytest.param(name, marks=pytest.mark.slow) for name in TRAINERS]
)
def test_nothing_that_is_written_is_dropped(tmp_path, trainer):
    """Each argument, at a value that is not its default, becomes an override or a remark that names it."""
    for arg in {a.name: a for a in (*BESIDE, *SCRIPT, *MODEL, *TRAINERS[trainer].args())}.values():
        if arg.name in NESTED:
            continue
        kind = arg.kind.rstrip("?")
        value = (not arg.default) if kind == "bool" else ODD[kind]
        path = tmp_path / "config.json"
        path.write_text(json.dumps({arg.name: value}), encoding="utf-8")
        found = outcome(source(path, trainer), trainer, Length(rows=80))
        said = [c.said for c in found.carried.values() if c.given] + [r.key + r.text for r in found.remarks]
        assert any(arg.name in text for text in said), arg.name
        assert not any(remark.text == FORGOTTEN for remark in found.remarks), arg.name
        assert not found.problems, arg.name


def test_a_default_that_is_written_is_listed_where_memcfg_takes_it_anyway(migrated):
    given = (
        "max_length: 1024\nneftune_noise_alpha: null\nseed: 42\ntruncation_mode: keep_start\npad_to_multiple_of: null\n"
    )
    found = migrated(HUB + given, "sft")
    assert set(found.overrides) == BASE | {"trainer=sft", "run.steps=30"}
    listed = [(remark.key.partition(" (")[0], remark.text) for remark in found.outcome.of_kind("same")]
    assert listed == [
        ("`max_length=1024`", "`truncation.max_length` is that by itself"),
        ("`neftune_noise_alpha=null`", "the default, which asks for nothing"),
        ("`truncation_mode=keep_start`", "`truncation.mode` is that by itself"),
        ("`pad_to_multiple_of=null`", "asks for nothing here"),
    ], "the seed is stated, because memcfg's own is another"


@pytest.mark.parametrize("trainer", TRAINERS)
def test_no_default_that_is_written_is_dropped(tmp_path, trainer):
    args = {a.name: a for a in (*BESIDE, *SCRIPT, *MODEL, *TRAINERS[trainer].args()) if "." not in a.name}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({arg.name: arg.default for arg in args.values()}), encoding="utf-8")
    found = worded(outcome(source(path, trainer), trainer, Length(rows=80)), load())
    said = [carried.said for _, carried in found.reasons] + [r.key + r.text for r in found.outcome.remarks]
    assert [name for name in args if not any(name in text for text in said)] == []


@pytest.mark.parametrize(
    ("given", "trainer"),
    [
        ("packing: true", "sft"),
        ("desirable_weight: 2", "kto"),
        ("loss_weights: [1]", "dpo"),
        ("center_rewards_coefficient: 0.1", "reward"),
        ("scale_rewards: none", "grpo"),
        ("normalize_advantages: true", "rloo"),
        ("lmbda: 0.5", "gkd"),
        ("missing_eos_penalty: 1", "online_dpo"),
    ],
)
def test_a_trainer_is_known_by_its_own_arguments(migrated, given, trainer):
    assert migrated(HUB + given).outcome.trainer == trainer


GRPO = {"grpo.kl_correction=true", "run.save_steps=500", "run.seed=42", "run.steps=30"}


def test_defaults_are_compared_though_the_rewards_are_not_known(migrated):
    found = migrated(HUB, "grpo")
    assert set(found.overrides) == (BASE - {"run.batch_size=8"}) | {"trainer=grpo"} | GRPO


def test_overrides_survive_the_way_through_the_command_line(migrated):
    """Whatever a value looks like, what is printed reads back as it."""
    import memcfg

    path = "a b's/{x},[y]=1.jsonl"
    found = migrated(yaml.safe_dump({
        "model_name_or_path": "1e5", "datasets": [{"path": "json", "data_files": path}], "use_peft": True,
        "lora_target_modules": ["q_proj", "null"], "output_dir": "true",
    }), "sft")  # fmt: skip
    request = memcfg.compose(found.overrides)
    assert request.choices["data.path"].value == path
    assert request.choices["model.path"].value == "1e5"
    assert request.choices["run.dir"].value == "true"
    assert request.choices["peft.targets"].value == ["q_proj", "null"]


def test_what_memcfg_refuses_is_shown_with_its_repairs(migrated):
    found = migrated(HUB + "packing: true\nmax_length: null", "sft", more=())
    assert found.exit_code == 2
    assert ("truncation.max_length=1024",) in found.error.repairs
    assert migrated(HUB + "packing: true\nmax_length: null", "sft", more=("truncation.max_length=1024",)).exit_code == 0


def test_rows_are_counted_where_they_lie(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"text": "a"}\n\n{"text": "b"}\n' * 10, encoding="utf-8")
    Path("config.yaml").write_text("dataset_text_field: text\ndatasets: [{path: json, data_files: rows.jsonl}]")
    found = outcome(source(Path("config.yaml"), "sft"), "sft", Length())
    assert found.value("run.steps") == 9  # 20 rows in micro-batches of 8, three times
    assert found.carried["run.steps"].said == "`num_train_epochs=3.0` (default), 20 rows (counted in `rows.jsonl`)"
