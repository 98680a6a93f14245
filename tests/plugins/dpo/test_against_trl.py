"""Beside TRL 1.16, on the same model and batch: equal where TRL is right, and what it does otherwise where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl")

from datasets import Dataset
from memcfg_attention.hooks import MaskedAttention
from memcfg_dpo.losses import Settings
from memcfg_dpo.objective import PreferencePairs
from memcfg_gkd.divergence import divergence
from memcfg_kto.hooks import Collator
from memcfg_kto.objective import MarkedCompletions
from memcfg_kto.objective import Settings as KtoSettings
from memcfg_loss.chunked import ChunkedHead
from memcfg_padding_free.hooks import RowsLayout
from memcfg_reference.references import Live
from memcfg_reward.objective import RankedPairs
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast

from memcfg.engine.forward import attach_head
from memcfg.engine.layout import Paper, laid
from memcfg.engine.pairs import collate
from memcfg.head.transform import HeadTransform

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SHAPES = ((4, 5, 3), (1, 2, 7), (6, 1, 1), (3, 6, 6))
EOS = 1
TOLERANCE = 1e-5


def config(**more: Any) -> LlamaConfig:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaConfig(
        vocab_size=40,
        initializer_range=0.2,
        pad_token_id=0,
        eos_token_id=EOS,
        attn_implementation="sdpa",
        **sizes,
        **more,
    )


def model(seed: int) -> Any:
    torch.manual_seed(seed)
    return LlamaForCausalLM(config())


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(
        models.WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, 40)}}, "<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def texts(count: int = len(SHAPES)) -> list[dict[str, str]]:
    generator = torch.Generator().manual_seed(5)
    said = lambda n: " ".join(f"w{i}" for i in torch.randint(3, 40, (n,), generator=generator).tolist())  # noqa: E731
    return [
        {"prompt": said(p) + " ", "chosen": said(c) + " <eos>", "rejected": said(r) + " <eos>"}
        for p, c, r in SHAPES[:count]
    ]


def ids(text: str) -> list[int]:
    return [{"<eos>": EOS}.get(word) or int(word[1:]) for word in text.split()]


def rows(given: list[dict[str, str]]) -> list[dict[str, Any]]:
    found = []
    for row in given:
        prompt, sides = ids(row["prompt"]), [ids(row["chosen"]), ids(row["rejected"])]
        found.append({
            "input_ids": prompt + sides[0] + prompt + sides[1],
            "labels": [-100] * len(prompt) + sides[0] + [-100] * len(prompt) + sides[1],
            "seq_lengths": [len(prompt) + len(side) for side in sides],
        })  # fmt: skip
    return found


def arguments(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "output_dir": str(folder), "per_device_train_batch_size": 4, "report_to": [], "bf16": False, "use_cpu": True,
        "gradient_checkpointing": False, "disable_tqdm": True, "max_length": None, "dataloader_num_workers": 0, **more,
    }  # fmt: skip


def headed(made: Any) -> Any:
    attach_head(made, ChunkedHead(HeadTransform(), budget=40 * 4 * 3))
    return made


def batch(documents: Any) -> Any:
    return laid(RowsLayout(Paper(pad_id=0)), documents)


def attention(made: Any) -> Any:
    return MaskedAttention("sdpa", made.config, made.dtype)


def in_order(trainer: Any) -> Any:
    """TRL's batch of all rows in their order, as its own collator makes it."""
    return trainer.data_collator([trainer.train_dataset[i] for i in range(len(trainer.train_dataset))])


def agree(found: Any, made: Any, other: Any, theirs: Any) -> None:
    """The same loss and the same gradients."""
    assert float(found.detach()) == pytest.approx(float(other.detach()), abs=TOLERANCE)
    made.zero_grad()
    theirs.zero_grad()
    found.backward()
    other.backward()
    wanted = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    for name, parameter in made.named_parameters():
        if name in wanted:
            assert torch.allclose(parameter.grad, wanted[name], atol=TOLERANCE), name


@pytest.fixture(scope="module")
def dpo(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from trl import DPOConfig, DPOTrainer

    config = DPOConfig(**arguments(tmp_path_factory.mktemp("dpo")), beta=0.3, use_weighting=True)
    return DPOTrainer(
        model=model(0), ref_model=model(1), args=config, train_dataset=Dataset.from_list(texts()),
        processing_class=tokenizer(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("losses", "settings"),
    [
        ({"sigmoid": 1.0}, {}),
        ({"hinge": 1.0}, {}),
        ({"ipo": 1.0}, {}),
        ({"sppo_hard": 1.0}, {}),
        ({"apo_down": 1.0}, {}),
        ({"discopop": 1.0}, {}),
        ({"exo_pair": 1.0}, {"smoothing": 0.1}),
        ({"robust": 1.0}, {"smoothing": 0.1}),
        ({"aot": 1.0}, {"smoothing": 0.1}),
        ({"sigmoid": 0.7, "nca_pair": 0.2}, {}),
        ({"sigmoid": 1.0}, {"divergence": "js_divergence"}),
        ({"sigmoid": 1.0}, {"divergence": "alpha_divergence"}),
        ({"sigmoid": 1.0}, {"ld_alpha": 0.4}),
        ({"sigmoid": 1.0}, {"weighting": True}),
    ],
)
def test_dpo(dpo: Any, losses: dict[str, float], settings: dict[str, Any]) -> None:
    dpo.loss_types, dpo.loss_weights = list(losses), list(losses.values())
    dpo.label_smoothing = settings.get("smoothing", 0.0)
    dpo.f_divergence_type = settings.get("divergence", "reverse_kl")
    dpo.ld_alpha, dpo.use_weighting = settings.get("ld_alpha"), settings.get("weighting", False)
    other = dpo.compute_loss(dpo.model, in_order(dpo))
    made, frozen = headed(model(0)), headed(model(1))
    goal = PreferencePairs(
        Settings(losses, 0.3, dpo.label_smoothing, dpo.f_divergence_type), dpo.ld_alpha, weighting=dpo.use_weighting
    )
    goal.bind(None, attention(made))
    goal.refer(Live(frozen))
    ours = batch(collate(rows(texts())))
    agree(goal.loss_sum(made, ours) / goal.count(ours), made, other, dpo.model)


def test_dpo_sft_differs_by_how_pairs_count(dpo: Any) -> None:
    """TRL takes the mean over the tokens of a micro-batch, so that its loss depends on what is batched with what. One pair at a
    time both are the same."""
    dpo.loss_types, dpo.loss_weights, dpo.use_weighting = ["sft"], [1.0], False
    dpo.ld_alpha, dpo.f_divergence_type, dpo.label_smoothing = None, "reverse_kl", 0.0
    made = headed(model(0))
    goal = PreferencePairs(Settings({"sft": 1.0}))
    goal.bind(None, attention(made))
    goal.refer(Live(headed(model(1))))
    single = [dpo.compute_loss(dpo.model, dpo.data_collator([dpo.train_dataset[i]])) for i in range(4)]
    mine = [goal.loss_sum(made, batch(collate([row]))) for row in rows(texts())]
    assert [float(x.detach()) for x in mine] == pytest.approx([float(x.detach()) for x in single], abs=TOLERANCE)
    together = dpo.compute_loss(dpo.model, in_order(dpo))
    assert float(together.detach()) != pytest.approx(sum(float(x.detach()) for x in single) / 4, abs=1e-3)


def marked(count: int) -> Any:
    found = [
        {"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
        for row in texts() for side in ("chosen", "rejected")
    ]  # fmt: skip
    return [found[i] for i in (0, 3, 4, 7, 2)][:count]


def kto(folder: Path, count: int, size: int) -> Any:
    from trl import KTOConfig, KTOTrainer

    config = KTOConfig(**arguments(folder) | {"per_device_train_batch_size": size}, beta=0.3, desirable_weight=1.5)
    return KTOTrainer(
        model=model(0), ref_model=model(1), args=config, train_dataset=Dataset.from_list(marked(count)),
        processing_class=tokenizer(),
    )  # fmt: skip


def test_kto(tmp_path: Path) -> None:
    trainer = kto(tmp_path, 4, 4)
    other = trainer.compute_loss(trainer.model, in_order(trainer))
    made = headed(model(0))
    goal = MarkedCompletions(KtoSettings("kto", 0.3, 1.5, 1.0))
    goal.bind(None, attention(made))
    goal.refer(Live(headed(model(1))))
    ours = []
    for row in marked(4):
        prompt, completion = ids(row["prompt"]), ids(row["completion"])
        whole = prompt + completion
        ours.append({
            "input_ids": whole, "labels": [-100] * len(prompt) + completion, "seq_lengths": [len(whole)],
            "label": row["label"],
        })  # fmt: skip
    laid_out = batch(Collator(True, None)(ours))
    agree(goal.loss_sum(made, laid_out) / goal.count(laid_out), made, other, trainer.model)


def test_kto_of_trl_pairs_the_odd_row_with_itself(tmp_path: Path) -> None:
    """Five rows, two at a time: it is for this that mismatched completions are made here of what the loader batches."""
    last = kto(tmp_path, 5, 2).train_dataset[4]
    assert last["KL_completion_ids"] == last["completion_ids"]


def test_reward(tmp_path: Path) -> None:
    from trl import RewardConfig, RewardTrainer

    torch.manual_seed(0)
    theirs = LlamaForSequenceClassification(config(num_labels=1))
    settings = RewardConfig(**arguments(tmp_path), center_rewards_coefficient=0.1)
    trainer = RewardTrainer(
        model=theirs, args=settings, train_dataset=Dataset.from_list(texts()), processing_class=tokenizer()
    )
    other = trainer.compute_loss(trainer.model, in_order(trainer))
    made = model(0)
    made.model.load_state_dict(theirs.model.state_dict())
    made.lm_head = torch.nn.Linear(16, 1, bias=False)
    made.lm_head.load_state_dict(theirs.score.state_dict())
    headed(made)
    goal = RankedPairs(0.1)
    goal.bind(None, attention(made))
    ours = batch(collate(rows(texts())))
    agree(goal.loss_sum(made, ours) / goal.count(ours), made, other, trainer.model)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_divergence(beta: float) -> None:
    trainers = pytest.importorskip("trl.experimental.gkd")
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(6, 40, generator=generator, requires_grad=True)
    teacher = torch.randn(6, 40, generator=generator)
    other = trainers.GKDTrainer.generalized_jsd_loss(student, teacher, beta=beta, reduction="sum")
    other.backward()
    value, slope = divergence(student.detach(), teacher, beta)
    assert float(value) == pytest.approx(float(other.detach()), abs=TOLERANCE)
    assert torch.allclose(slope, student.grad, atol=TOLERANCE)
