"""One script, run by TRL and read by memcfg: both have the same loss at every step."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

pytest.importorskip("trl")

import torch
from memcfg_migrate.plan import migrate
from memcfg_migrate.schedule import Length
from memcfg_migrate.trl.read import source
from memcfg_migrate.trl.trainers import TRAINERS
from memcfg_migrate.trl.translate import outcome
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from memcfg.cli import main
from memcfg.registry import load

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TOLERANCE = 1e-5
COMMON = """
    output_dir="{out}", per_device_train_batch_size=2, gradient_accumulation_steps=3, num_train_epochs=1, logging_steps=1,
    learning_rate=1e-2, max_grad_norm=1.0, save_strategy="no", report_to="none", bf16=False, use_cpu=True, max_length=12,
"""
SFT = (
    """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
args = SFTConfig("""
    + COMMON
    + """    completion_only_loss=True, lr_scheduler_type="cosine", warmup_steps=0.2, weight_decay=0.1)
rows = load_dataset("json", data_files="{rows}", split="train")
trainer = SFTTrainer("{model}", args=args, train_dataset=rows)
"""
)
DPO = (
    """
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer
args = DPOConfig("""
    + COMMON
    + """    beta=0.3, loss_type=["sigmoid", "ipo"], loss_weights=[1.0, 0.5])
rows = load_dataset("json", data_files="{rows}", split="train")
trainer = DPOTrainer(model="{model}", args=args, train_dataset=rows)
"""
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a two-layer Llama and a tokenizer of words."""
    folder = tmp_path_factory.mktemp("model")
    words = Tokenizer(
        models.WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, 40)}}, "<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, initializer_range=0.2, pad_token_id=0, eos_token_id=1, bos_token_id=None, **sizes
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def words(generator: torch.Generator, most: int) -> str:
    count = int(torch.randint(1, most, (1,), generator=generator))
    return " ".join(f"w{i}" for i in torch.randint(3, 40, (count,), generator=generator).tolist())


def rows(path: Path, columns: tuple[str, ...]) -> Path:
    """Six rows, so that a step holds them all and their order does not matter."""
    generator = torch.Generator().manual_seed(3)
    lines = [{"prompt": words(generator, 6) + " "} | {c: words(generator, 12) for c in columns} for _ in range(6)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


OLD = {
    "evaluation_strategy", "logging_dir", "overwrite_output_dir", "warmup_ratio", "group_by_length", "max_seq_length",
    "num_of_sequences", "dataset_batch_size", "max_prompt_length", "max_completion_length", "reference_free",
    "vllm_max_model_length", "log_completions_hub_repo",
}  # fmt: skip
"""Arguments of older releases, or of some trainers only, that are known so that they can be explained."""


@pytest.mark.parametrize("trainer", TRAINERS.values(), ids=TRAINERS)
def test_the_tables_are_those_of_trl(trainer):
    import dataclasses

    import trl
    from trl.experimental.gkd import GKDConfig
    from trl.experimental.online_dpo import OnlineDPOConfig

    rare = {"GKDConfig": GKDConfig, "OnlineDPOConfig": OnlineDPOConfig}
    config = rare.get(trainer.config) or getattr(trl, trainer.config)
    fields = {
        f.name: f.default if f.default is not dataclasses.MISSING else f.default_factory()
        for f in dataclasses.fields(config)
    }
    ours = {arg.name: arg.default for arg in trainer.args()}
    assert not set(fields) - set(ours)
    assert not set(ours) - set(fields) - OLD
    assert {n: (d, fields[n]) for n, d in ours.items() if n in fields and d != fields[n] and n != "loss_type"} == {}


def losses(path: Path) -> list[float]:
    """The loss of each step."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if "loss" in line and line["step"] > 0]


@pytest.mark.parametrize(
    ("script", "columns"), [(SFT, ("completion",)), (DPO, ("chosen", "rejected"))], ids=["sft", "dpo"]
)
def test_a_migrated_script_has_the_loss_of_trl(tmp_path, monkeypatch, capsys, model, script, columns):
    monkeypatch.chdir(tmp_path)
    places = {"out": tmp_path / "trl", "rows": rows(tmp_path / "rows.jsonl", columns), "model": model}
    path = tmp_path / "train.py"
    path.write_text(script.format(**places), encoding="utf-8")

    found = migrate(outcome(source(path, None), None, Length()), [], load(), None)
    assert found.exit_code == 0, found.error
    assert "run.steps=1" in found.overrides
    assert [r.key for r in found.outcome.remarks if r.kind in ("open", "unread", "learning")] == []
    steps = 5
    assert main(["-q", *found.overrides, f"run.steps={steps}", "run.dir=ours"]) == 0
    ours = losses(Path("ours/metrics.jsonl"))

    made = runpy.run_path(str(path))["trainer"]
    made.args.max_steps = steps
    made.train()
    theirs = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    assert len(theirs) == steps
    assert ours == pytest.approx(theirs, abs=TOLERANCE)
