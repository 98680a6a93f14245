"""Reward models from folders: the same scores however they are computed, text and tokens, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_attention.hooks import MaskedAttention
from memcfg_padding.hooks import PaddedLayout
from memcfg_padding_free.hooks import RowsLayout
from memcfg_rewards.models import RewardModel, alone, load

import memcfg
from memcfg import RunError
from memcfg.engine.execute import train
from memcfg.engine.layout import Paper
from memcfg.judging import Bench, Reward, Rewards
from memcfg.registry import load as registry
from memcfg.rollouts import Round, Sample

pytestmark = pytest.mark.torch

PLAN = {"model.dtype": "float32", "run.batch_size": 3, "truncation.max_length": None, "data.chat_template": None}
LAYOUTS = {"padded": PaddedLayout, "rows": RowsLayout}
END = 0
"""Id of the end token of both tokenizers, with which rows are padded too."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from memcfg_model import tiny

    return tiny.tokenizer()


def words() -> Any:
    """Another tokenizer: one token for each word that it knows."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = ["<end>", "<unknown>", "write", "digits", "now", "1", "2", "user", "assistant", ":"]
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(known)}, unk_token="<unknown>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<end>", unk_token="<unknown>")


def saved(
    folder: Path, tokenizer: Any, *, kind: str = "llama", spoil: Callable[[Any], Any] = lambda model: None
) -> str:
    """A small reward model and its tokenizer in a folder."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), num_labels=1, pad_token_id=END, initializer_range=0.3, **sizes
    )
    model = AutoModelForSequenceClassification.from_config(config)
    spoil(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def bench(tokenizer: Any, layout: str = "padded", attention: Callable[[Any], Any] | None = None) -> Bench:
    usual = lambda model: MaskedAttention("sdpa", model.config, model.dtype)  # noqa: E731
    return Bench("cpu", tokenizer, lambda _: LAYOUTS[layout](Paper(pad_id=END)), attention or usual)


def oracle(made: RewardModel, ids: list[list[int]]) -> list[float]:
    """What Transformers' classifier says of each document alone, whose last token is the one that is read."""
    return [float(alone(made.model, torch.tensor(one))) for one in ids]


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("size", [1, 2, 8])
def test_scores_equal_the_classifiers_own(tmp_path: Path, tokenizer: Any, layout: str, size: int) -> None:
    """Documents of one token, and such that end with the token that rows are padded with, among them."""
    made = load({**PLAN, "run.batch_size": size}, saved(tmp_path, tokenizer), bench(tokenizer, layout))
    assert made.layout is not None
    prompts, completions = [[5, 6], [], [9], [4, 5, 6, 7]], [[7, 8, END], [3], [END], [END, END]]
    scores = made(["?"] * 4, ["?"] * 4, prompts, completions, [True] * 4)
    wanted = oracle(made, [p + c for p, c in zip(prompts, completions, strict=True)])
    assert scores == pytest.approx(wanted, abs=1e-5)
    assert len({round(score, 4) for score in scores}) == 4
    assert not any(p.requires_grad for p in made.model.parameters())


def test_the_same_as_transformers_in_one_padded_batch(tmp_path: Path, tokenizer: Any) -> None:
    """As TRL asks it: text of prompt and completion, padded on the right. Only completions that did not end are the same
    tokens in both."""
    made = load(PLAN, saved(tmp_path, tokenizer), bench(tokenizer))
    texts = [("Write digits.", " 12"), ("Now", " some more of them, please")]
    ids = [tokenizer(prompt + completion)["input_ids"] for prompt, completion in texts]
    given = tokenizer([p + c for p, c in texts], return_tensors="pt", padding=True, padding_side="right")
    scores = made(["?"] * 2, ["?"] * 2, [[], []], ids, [False] * 2)
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    model.config.pad_token_id = tokenizer.pad_token_id
    with torch.no_grad():
        found = model(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).logits[:, 0]
    assert scores == pytest.approx(found.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("prompt", "completion", "ended", "tokens"),
    [
        ("write digits", " 1 2", True, ["write", "digits", "1", "2", "<end>"]),
        ("write digits", " 1 2", False, ["write", "digits", "1", "2"]),
        ("write", " letters", False, ["write", "<unknown>"]),
        (
            [{"role": "user", "content": "write"}], [{"role": "assistant", "content": "1"}], True,
            ["user", ":", "write", "assistant", ":", "1", "<end>"],
        ),
    ],
)  # fmt: skip
def test_another_tokenizer_reads_the_text(
    tmp_path: Path, tokenizer: Any, prompt: Any, completion: Any, ended: bool, tokens: list[str]
) -> None:
    own = words()
    own.chat_template = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + ' ' }}{% endfor %}"
    made = load(PLAN, saved(tmp_path, own), bench(tokenizer))
    assert made.describe().endswith("frozen weights reads text, by its own tokenizer, 3 at a time in the plan's layout")
    scores = made([prompt], [completion], [[1, 2, 3]], [[4]], [ended])
    assert scores == pytest.approx(oracle(made, [own.convert_tokens_to_ids(tokens)]), abs=1e-5)


def test_a_model_that_mixes_documents_judges_them_one_at_a_time(tmp_path: Path, tokenizer: Any) -> None:
    class Mixing(MaskedAttention):
        def inputs(self, batch: Any) -> dict[str, Any]:
            return {"position_ids": torch.arange(batch.input_ids.shape[1]).expand_as(batch.input_ids)}

    leaky = bench(tokenizer, "rows", lambda model: Mixing("sdpa", model.config, model.dtype))
    made = load(PLAN, saved(tmp_path, tokenizer), leaky)
    assert made.layout is None
    assert made.describe().endswith("reads the policy's tokens, one at a time")
    ids = [[5, 6, 7], [8, END], [9]]
    assert made([""] * 3, [""] * 3, [[]] * 3, ids, [True] * 3) == pytest.approx(oracle(made, ids), abs=1e-6)


def test_a_classifier_that_reads_both_ways_judges_one_at_a_time(tmp_path: Path, tokenizer: Any) -> None:
    made = load(PLAN, saved(tmp_path, tokenizer, kind="bert"), bench(tokenizer))
    assert made.layout is None
    assert len(made([""] * 2, [""] * 2, [[5], [6, 7]], [[8], [9]], [True] * 2)) == 2


def test_longer_than_the_layout_takes(tmp_path: Path, tokenizer: Any) -> None:
    """Another tokenizer may make more tokens of a text than the policy's."""
    made = load({**PLAN, "truncation.max_length": 3}, saved(tmp_path, tokenizer), bench(tokenizer))
    ids = [[5, 6, 7, 8, 9], [4, 5]]
    assert made([""] * 2, [""] * 2, [[]] * 2, ids, [True] * 2) == pytest.approx(oracle(made, ids), abs=1e-6)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (
            [5] * 3000,
            "`rewards.models`: a completion and its prompt have 3,000 tokens, and the reward model `{at}` 2,048 positions\n"
            "  fewer `generation.max_new_tokens`, or shorter prompts",
        ),
        ([5, 10**6], "`rewards.models`: the policy sampled token 1000000, and the reward model `{at}` knows {known:,}"),
    ],
)
def test_what_it_cannot_read_is_said(tmp_path: Path, tokenizer: Any, ids: list[int], said: str) -> None:
    made = load(PLAN, saved(tmp_path, tokenizer), bench(tokenizer))
    with pytest.raises(RunError) as caught:
        made([""], [""], [[]], [ids], [True])
    assert str(caught.value) == said.format(at=tmp_path, known=len(tokenizer))


def test_weights_that_are_no_numbers_are_found_before_training(tmp_path: Path, tokenizer: Any) -> None:
    at = saved(tmp_path, tokenizer, spoil=lambda model: model.score.weight.data.fill_(torch.nan))
    with pytest.raises(RunError) as caught:
        load(PLAN, at, bench(tokenizer))
    assert str(caught.value) == (
        f"`rewards.models`: the reward model `{at}` scores completions with nan: its weights are no finite numbers"
    )


def test_a_score_that_is_not_finite_stops_the_run(tmp_path: Path, tokenizer: Any) -> None:
    at = saved(tmp_path, tokenizer)
    made = load(PLAN, at, bench(tokenizer))
    made.model.get_input_embeddings().weight[6] = torch.inf
    sampled = Round([[5]], [{"prompt": "x"}], [Sample([6], True)], 1)
    with pytest.raises(RunError) as caught:
        Rewards([Reward(at, made, "judge", "rewards.models")], [1.0], tokenizer)(sampled)
    assert (
        str(caught.value) == f"`rewards.models`: the reward `{at}` gave nan for completion 0, which is no finite number"
    )


def test_a_head_that_was_not_saved_is_missed(tmp_path: Path, tokenizer: Any) -> None:
    from safetensors.torch import load_file, save_file

    at = saved(tmp_path, tokenizer)
    weights = {name: value for name, value in load_file(f"{at}/model.safetensors").items() if name != "score.weight"}
    save_file(weights, f"{at}/model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunError) as caught:
        load(PLAN, at, bench(tokenizer))
    assert str(caught.value) == (
        f"`rewards.models`: the files of `{at}` lack 1 of the model's weights: `score.weight`\n"
        "  save the whole reward model, with its head"
    )


# ------------------------------------------------------------------------------------------------------- whole runs

SMALL = [
    "model.hidden=32", "model.layers=2", "run.steps=1", "run.batch_size=4", "run.log_steps=1", "data=jsonl",
    "generation.max_new_tokens=5", "rewards.functions=[finished]", "rewards.weights=[0.5,2.0]",
]  # fmt: skip
GROUPS = {"grpo": ["grpo.num_generations=2"], "rloo": ["rloo.num_generations=2"], "online_dpo": []}


def ran(folder: Path, *overrides: str) -> SimpleNamespace:
    torch.set_num_threads(1)
    plan = memcfg.resolve(list(overrides))
    train(plan, registry().hooks(plan), folder)
    read = lambda name: (folder / name).read_text(encoding="utf-8").splitlines()  # noqa: E731
    return SimpleNamespace(
        metrics=[json.loads(line) for line in read("metrics.jsonl")],
        effective=json.loads("".join(read("effective.json"))),
        completions=[json.loads(line) for line in read("completions.jsonl")]
        if "trainer=reward" not in overrides
        else [],
    )


@pytest.mark.slow
def test_a_reward_model_that_was_trained_here_judges_every_online_trainer(tmp_path: Path) -> None:
    ran(tmp_path / "judge", "trainer=reward", "model.hidden=32", "model.layers=2", "run.steps=1", "run.eval_steps=null")
    judge = tmp_path / "judge" / "model"
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Write {'so ' * i}."}) + "\n" for i in range(8)), encoding="utf-8")
    for trainer, own in GROUPS.items():
        layout = ["padding_free=on"] if trainer == "grpo" else []
        given = [f"trainer={trainer}", *own, *layout, *SMALL, f"data.path={file}", f"rewards.models=[{judge}]"]
        found = ran(tmp_path / trainer, *given)
        assert "rewards/judge/model/std" in found.metrics[-1], trainer
        for line in found.completions:
            worth = line["rewards"]
            assert line["reward"] == pytest.approx(0.5 * worth["finished"] + 2.0 * worth["judge/model"]), trainer
        seen = found.effective["rewards.models"]
        assert seen["effective"] == [str(judge)]
        assert "frozen weights reads the policy's tokens, 4 at a time in the plan's layout" in seen["evidence"]
        assert found.effective["rewards.functions"]["effective"] == ["finished"]
