"""Configs of axolotl and of LLaMA-Factory in, overrides and remarks out. `given` is YAML."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from memcfg_migrate import hf
from memcfg_migrate.axolotl import translate as axolotl
from memcfg_migrate.axolotl.keys import KEYS
from memcfg_migrate.llamafactory import translate as llamafactory
from memcfg_migrate.llamafactory.keys import DATA, MODEL, TUNING
from memcfg_migrate.plan import worded
from memcfg_migrate.reading import mapping
from memcfg_migrate.schedule import Length

from memcfg import RequestError
from memcfg.registry import load


@pytest.fixture
def migrated(tmp_path: Path):
    def run(program, text: str, rows: int | None = 80):
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return worded(program.outcome(mapping(path), Length(rows)), load())

    return run


AXOLOTL = "base_model: org/model\nlearning_rate: 1e-4\ndatasets: [{path: org/rows, type: completion}]\n"
AXOLOTL_BASE = {
    "trainer=sft", "model=hub", "model.path=org/model", "model.dtype=bfloat16", "data=hub", "data.path=org/rows",
    "truncation.max_length=512", "checkpointing=none", "run.batch_size=1", "run.learning_rate=0.0001", "run.seed=42",
    "run.scheduler=cosine", "run.steps=80", "run.warmup_steps=2", "run.log_steps=1", "run.save_steps=80",
}  # fmt: skip

AXOLOTL_ROWS = [
    # given, then beside the base, instead of, because
    ("", set(), (), "axolotl's defaults differ from memcfg's in all of these"),
    ("micro_batch_size: 4\ngradient_accumulation_steps: 5\nnum_epochs: 2", {
        "run.batch_size=4", "run.accumulation=5", "run.steps=8", "run.save_steps=4",
    }, ("run.batch_size", "run.steps", "run.warmup_steps", "run.save_steps"), "80 rows are 4 steps an epoch"),
    ("micro_batch_size: 2\nbatch_size: 8\nnum_epochs: 1", {
        "run.batch_size=2", "run.accumulation=4", "run.steps=10", "run.save_steps=10",
    }, ("run.batch_size", "run.steps", "run.warmup_steps", "run.save_steps"), "`batch_size` is that of a step"),
    ("sample_packing: true\nflash_attention: true", {"packing=bfd", "attention=flash2"}, (), "documents are kept apart"),
    ("gradient_checkpointing: offload", {"checkpointing=full", "offload=checkpoint_inputs"}, ("checkpointing",), "two techniques"),
    ("adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true", {
        "peft=lora", "peft.rank=8", "peft.alpha=16", "peft.dropout=0.0", "peft.targets=all-linear", "quantization=nf4",
        "quantization.double=true", "quantization.storage=bfloat16",
    }, (), "what axolotl sets under load_in_4bit is said"),
    ("train_on_inputs: true\ntiled_mlp: true\nmax_steps: 9", {
        "sft.completion_only=false", "mlp.mode=tiled", "run.steps=9",
    }, ("run.steps", "run.warmup_steps"), "max_steps counts"),
    ("rl: dpo\nrl_beta: 0.2\ndpo_use_weighting: true", {"trainer=dpo", "dpo.beta=0.2", "dpo.weighting=true"},
     ("trainer",), ""),
    ("rl: ipo", {"trainer=dpo", "dpo.loss=ipo"}, ("trainer",), ""),
    ("rl: kto\nkto_desirable_weight: 0.5", {"trainer=kto", "kto.desirable_weight=0.5"}, ("trainer",), ""),
    ("reward_model: true\ncenter_rewards_coefficient: 0.1", {"trainer=reward", "reward.center_coefficient=0.1"},
     ("trainer",), ""),
    ("bf16: false\nfp16: true", {"model.dtype=float16"}, ("model.dtype",), ""),
]  # fmt: skip


@pytest.mark.parametrize(("given", "then", "instead", "because"), AXOLOTL_ROWS)
def test_what_an_axolotl_config_becomes(migrated, given, then, instead, because):
    found = migrated(axolotl, AXOLOTL + given)
    usual = {text for text in AXOLOTL_BASE if text.partition("=")[0] not in instead}
    assert set(found.overrides) == usual | then, because
    assert not found.outcome.problems


FACTORY = "model_name_or_path: org/model\nlearning_rate: 1e-4\nfinetuning_type: full\n"
FACTORY_BASE = {
    "trainer=sft", "model=hub", "model.path=org/model", "truncation.max_length=2048", "checkpointing.reentrant=true",
    "run.batch_size=8", "run.learning_rate=0.0001", "run.log_steps=500", "run.save_steps=500", "run.seed=42",
    "run.steps=30",
}  # fmt: skip

FACTORY_ROWS = [
    ("", set(), (), "its arguments are those of Transformers"),
    ("finetuning_type: lora\nlora_rank: 4\nlora_target: q_proj,v_proj", {
        "peft=lora", "peft.rank=4", "peft.alpha=8", "peft.dropout=0.0", "peft.targets=[q_proj, v_proj]",
    }, (), "the scale is twice the rank"),
    ("finetuning_type: lora\npissa_init: true", {
        "peft=lora", "peft.rank=8", "peft.alpha=16", "peft.dropout=0.0", "peft.targets=all-linear",
        "peft.config={init_lora_weights: pissa_niter_16}",
    }, (), ""),
    ("stage: pt", {"packing=wrapped"}, (), "pre-training packs by itself"),
    ("neat_packing: true", {"packing=bfd"}, (), "documents are kept apart"),
    ("stage: dpo\npref_loss: hinge\npref_ftx: 0.1\nld_alpha: 0.5", {
        "trainer=dpo", "dpo.loss=mixture", "dpo.mixture={hinge: 1.0, sft: 0.1}", "dpo.ld_alpha=0.5",
    }, ("trainer",), ""),
    ("stage: kto\nkto_chosen_weight: 2", {"trainer=kto", "kto.desirable_weight=2.0"}, ("trainer",), ""),
    ("stage: rm", {"trainer=reward"}, ("trainer",), ""),
    ("disable_gradient_checkpointing: true", {"checkpointing=none"}, ("checkpointing.reentrant",), ""),
    ("use_unsloth_gc: true", {"offload=checkpoint_inputs"}, (), "it moves the inputs of checkpoints"),
    ("pure_bf16: true\nuse_dft_loss: true", {"model.dtype=bfloat16", "loss=dft"}, (), ""),
    ("max_samples: 5", {"data.limit=5"}, (), ""),
]  # fmt: skip


@pytest.mark.parametrize(("given", "then", "instead", "because"), FACTORY_ROWS)
def test_what_a_llamafactory_config_becomes(migrated, given, then, instead, because):
    base = FACTORY.replace("finetuning_type: full\n", "") if "finetuning_type" in given else FACTORY
    found = migrated(llamafactory, base + given)
    usual = {text for text in FACTORY_BASE if text.partition("=")[0] not in instead}
    assert set(found.overrides) == usual | then, because
    assert not found.outcome.problems


REMARKS = [
    (axolotl, "excess_length_strategy: drop", "differs", "longer rows are dropped there; here they are cut"),
    (axolotl, "sample_packing: true", "there", "documents see each other without flash, sdp or flex attention"),
    (axolotl, "lora_r: 8", "there", "not read without an `adapter`"),
    (axolotl, "special_tokens: {pad_token: x}", "learning", "the tokenizer and its tokens are used as they are"),
    (axolotl, "plugins: [mine.Plugin]", "learning", "`mine.Plugin` is a plugin of axolotl, not of memcfg"),
    (axolotl, "val_set_size: 0.1", "open", "rows are held out by their number"),
    (axolotl, "wandb_project: x", "other", "`WANDB_PROJECT` names it"),
    (axolotl, "evals_per_epoch: 4", "there", "no rows are held out"),
    (llamafactory, "packing: true", "differs", "see each other there without `neat_packing`; here they never do"),
    (llamafactory, "template: llama3", "differs", "by the tokenizer's own template"),
    (llamafactory, "lora_rank: 8\nlora_dropout: 0.1", "there", "not read under `finetuning_type=full`"),
    (llamafactory, "use_galore: true", "learning", "no optimizer projects gradients"),
    (llamafactory, "dataset: a,b", "open", "2 data sets; one is read"),
    (llamafactory, "stage: dpo\npref_loss: orpo", "learning", "compares without a reference"),
]


@pytest.mark.parametrize(("program", "given", "kind", "said"), REMARKS)
def test_what_is_said_of_a_config(migrated, program, given, kind, said):
    remarks = migrated(program, (AXOLOTL if program is axolotl else FACTORY) + given).outcome.of_kind(kind)
    assert any(said in remark.text for remark in remarks), remarks


@pytest.mark.parametrize(
    ("program", "given", "message"),
    [
        (axolotl, "rl: orpo", "`rl`: `orpo` has no trainer here ("),
        (llamafactory, "stage: ppo", "`stage`: there is no trainer for PPO here ("),
    ],
)
def test_an_objective_without_a_trainer_is_refused(migrated, program, given, message):
    with pytest.raises(RequestError) as caught:
        migrated(program, given)
    assert str(caught.value).startswith(message)


def test_a_data_set_is_found_in_the_list_of_data_sets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/dataset_info.json").write_text(json.dumps({"mine": {"file_name": "mine.jsonl"}}), encoding="utf-8")
    Path("data/mine.jsonl").write_text('{"text": "a"}\n' * 32, encoding="utf-8")
    Path("config.yaml").write_text("dataset: mine\nnum_train_epochs: 2", encoding="utf-8")
    found = llamafactory.outcome(mapping(Path("config.yaml")), Length())
    assert (found.value("data.source"), found.value("data.path")) == ("jsonl", "data/mine.jsonl")
    assert found.value("run.steps") == 8


ODD = {"int": 3, "float": 0.125, "str": "odd", "list": ["odd"], "dict": {"odd": 1}, "any": "odd", "names": ["odd"]}
slowly = partial(pytest.param, marks=pytest.mark.slow)
FACTORY_ARGS = (*hf.arguments(), *MODEL, *DATA, *TUNING)


@pytest.mark.parametrize(
    ("program", "args", "base"),
    [
        (axolotl, KEYS, {}),
        (llamafactory, FACTORY_ARGS, {}),
        *(slowly(axolotl, KEYS, base) for base in ({"rl": "dpo"}, {"rl": "grpo"}, {"adapter": "lora"})),
        *(slowly(llamafactory, FACTORY_ARGS, base) for base in ({"stage": "dpo"}, {"finetuning_type": "full"})),
    ],
)  # fmt: skip
def test_nothing_that_is_written_is_dropped(tmp_path, program, args, base):
    """Each key, at a value that is not its default, becomes an override, a remark that names it, or an error."""
    for arg in {a.name: a for a in args if a.name not in ("rl", "stage", *base)}.values():
        kind = arg.kind.rstrip("?")
        path = tmp_path / "config.json"
        value = (not arg.default) if kind == "bool" else ODD[kind]
        path.write_text(json.dumps({**base, arg.name: value}), encoding="utf-8")
        found = program.outcome(mapping(path), Length(rows=80))
        said = [c.said for c in found.carried.values() if c.given] + [r.key + r.text for r in found.remarks]
        assert any(arg.name in text for text in said) or found.problems, arg.name
        assert not any("nothing here reads it" in remark.text for remark in found.remarks), arg.name


ANYTHING = (
    None, True, 0, -1, 10**30, 0.5, float("nan"), float("inf"), "", "x", "null", "auto", "2e-5", "epoch", [], ["a"], [1],
    [None], {}, {"a": 1}, [{"path": "x.jsonl"}], [{"path": 3}], {"zero_optimization": {"stage": 3}}, "é\n`x`", "a'b\"c",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_written_is_answered(tmp_path, seed):
    """Random keys with random values: a migration, or an error that says what is wrong; never a fault."""
    import random

    from memcfg_migrate import show
    from memcfg_migrate.plan import Migration
    from memcfg_migrate.trl.read import source
    from memcfg_migrate.trl.trainers import BESIDE, SCRIPT, TRAINERS
    from memcfg_migrate.trl.trainers import MODEL as TRL_MODEL
    from memcfg_migrate.trl.translate import outcome

    from memcfg import MemcfgError

    chance, path = random.Random(seed), tmp_path / "config.json"
    programs = [(lambda: axolotl.outcome(mapping(path), Length(chance.choice([None, 80]))), KEYS)]
    programs += [(lambda: llamafactory.outcome(mapping(path), Length(chance.choice([None, 80]))), FACTORY_ARGS)]
    for name, trainer in TRAINERS.items():
        args = (*BESIDE, *SCRIPT, *TRL_MODEL, *trainer.args())
        programs += [(lambda name=name: outcome(source(path, name), name, Length(80)), args)]
    for _ in range(100):
        run, args = chance.choice(programs)
        written = {chance.choice(args).name: chance.choice(ANYTHING) for _ in range(chance.randint(1, 8))}
        path.write_text(json.dumps(written), encoding="utf-8")
        try:
            found = Migration(run())
        except MemcfgError:
            continue
        assert list(show.text(found)) and show.data(found) and show.preset(found), written  # noqa: PT018
