"""Reward models: sequence classifiers with one output, frozen beside the policy, that judge whole completions.

A completion is judged with its prompt. Where the reward model's tokenizer is the policy's, the tokens are judged that were
sampled, an end token among them; any other reads the text: the prompt and the completion as one, ended by its end token if the
completion ended by itself; of a conversation, what its chat template makes of it.

The score is the classifier's head on the state of the last token, found by its place, as padding may have the id of the end
token. Completions are judged `size` at a time in the plan's layout, so padding-free where that is on, if the model proves at
the start that its documents do not see each other; one at a time otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from memcfg import MemcfgError, Problem, RunError, conversations
from memcfg.batch import IGNORE, Documents
from memcfg.engine import documents
from memcfg.modelfiles import all_there, explained
from memcfg_rewards.folders import OPTION, check

if TYPE_CHECKING:
    from memcfg import Plan
    from memcfg.batch import Attention, Layout
    from memcfg.judging import Bench

Tensor = torch.Tensor
HEAD = "score"
"""What Transformers calls the linear layer of classifiers that read the last token."""
PROBE = (7, 1, 4)
"""Tokens of the documents that a model proves itself on."""
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
LOW_PRECISION = 3e-2


@dataclass
class RewardModel:
    """`model` is frozen; `own`: its tokenizer, None where it is the policy's; `layout` and `attention` are None where it judges one
    completion at a time; `longest`: the most tokens that the layout takes, None for no limit."""

    path: str
    model: Any
    own: Any
    layout: Layout | None
    attention: Attention | None
    size: int
    longest: int | None = None

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], prompt_ids: Sequence[Sequence[int]],
        completion_ids: Sequence[Sequence[int]], finished: Sequence[bool],
    ) -> list[float]:  # fmt: skip
        """One number for each completion. Raises `RunError` for one that the model cannot read."""
        if self.own is None:
            ids = [[*prompt, *completion] for prompt, completion in zip(prompt_ids, completion_ids, strict=True)]
        else:
            ids = [self._read(*one) for one in zip(prompts, completions, finished, strict=True)]
        self._fits(ids)
        return self.judged(ids).tolist()  # type: ignore[no-any-return]

    @torch.no_grad()
    def judged(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """The scores of documents, float64 on the CPU [n]."""
        whole = [torch.tensor(one) for one in ids]
        parts = [whole[at : at + self.size] for at in range(0, len(whole), self.size)]
        return torch.cat([self._together(part) for part in parts])

    def _together(self, part: list[Tensor]) -> Tensor:
        longest = max(map(len, part))
        if self.layout is None or self.attention is None or (self.longest is not None and longest > self.longest):
            return torch.cat([alone(self.model, one) for one in part])
        given = Documents(part, [torch.full_like(one, IGNORE) for one in part], [[at] for at in range(len(part))])
        batch = self.layout(given).to(self.model.device)
        inputs = {**batch.inputs, **self.attention.inputs(batch), "use_cache": False}
        hidden = getattr(self.model, self.model.base_model_prefix)(**inputs).last_hidden_state
        last = hidden.flatten(0, 1).index_select(0, documents.last_positions(batch))
        return getattr(self.model, HEAD)(last).squeeze(1).double().cpu()  # type: ignore[no-any-return]

    def _read(self, prompt: Any, completion: Any, ended: bool) -> list[int]:
        """Token ids of its own tokenizer."""
        if not isinstance(prompt, str):
            return list(conversations.encode(self.own, [[*prompt, *completion]])[0].ids)
        ids, end = list(conversations.text_ids(self.own, [prompt + completion])[0]), self.own.eos_token_id
        return [*ids, end] if ended and end is not None and ids[-1:] != [end] else ids

    def _fits(self, ids: Sequence[Sequence[int]]) -> None:
        config = self.model.config.get_text_config()
        positions, known = (
            getattr(config, "max_position_embeddings", None),
            self.model.get_input_embeddings().num_embeddings,
        )
        longest, highest = max(map(len, ids)), max(map(max, ids))
        if isinstance(positions, int) and longest > positions:
            text = f"a completion and its prompt have {longest:,} tokens, and the reward model `{self.path}` {positions:,} positions"
            raise RunError(Problem(text, key=OPTION, fix="fewer `generation.max_new_tokens`, or shorter prompts"))
        if highest >= known:
            text = f"the policy sampled token {highest}, and the reward model `{self.path}` knows {known:,}"
            raise RunError(Problem(text, key=OPTION))

    def describe(self) -> str:
        size = sum(p.numel() for p in self.model.parameters())
        tokens = "the policy's tokens" if self.own is None else "text, by its own tokenizer"
        how = "one at a time" if self.layout is None else f"{self.size} at a time in the plan's layout"
        return f"`{type(self.model).__name__}` of {size:,} frozen weights reads {tokens}, {how}"


def load(plan: Plan, path: str, bench: Bench) -> RewardModel:
    """The reward model in a folder, frozen. Raises `RunError` where there is none."""
    place = check(path)
    dtype = plan["model.dtype"]
    loaded: Any = None
    report: dict[str, Any] = {}
    with explained(path, "reward model", OPTION):
        own = AutoTokenizer.from_pretrained(place)
        loaded, report = AutoModelForSequenceClassification.from_pretrained(  # type: ignore[misc]
            place, output_loading_info=True, dtype=dtype if dtype == "auto" else getattr(torch, dtype)
        )
    all_there(path, report["missing_keys"], "save the whole reward model, with its head", OPTION)
    if loaded.config.num_labels != 1:
        raise RunError(Problem(f"the classifier `{path}` has {loaded.config.num_labels} labels, not one", key=OPTION))
    loaded.config.get_text_config().pad_token_id = None  # one at a time, its own forward then reads the last token
    conversations.use_template(own, plan.get("data.chat_template"))
    same = conversations.state(own) == conversations.state(bench.tokenizer)
    made = RewardModel(
        path, loaded.requires_grad_(False).eval().to(bench.device), None if same else own, None, None,
        plan["run.batch_size"], plan.get("truncation.max_length"),
    )  # fmt: skip
    together(made, bench)
    return made


def together(made: RewardModel, bench: Bench) -> None:
    """Let it judge several at a time in the plan's layout, where it scores probes as it does one at a time. Raises `RunError`
    where it scores none."""
    known, generator = made.model.get_input_embeddings().num_embeddings, torch.Generator().manual_seed(0)
    probes = [torch.randint(known, (size,), generator=generator).tolist() for size in PROBE]
    wanted = made.judged(probes)
    if not wanted.isfinite().all():
        raise RunError(
            Problem(
                f"the reward model `{made.path}` scores completions with nan: its weights are no finite numbers",
                key=OPTION,
            )
        )
    if not isinstance(getattr(made.model, HEAD, None), torch.nn.Linear):
        return
    usual, size = made.model.config.get_text_config()._attn_implementation, made.size
    try:
        made.layout, made.attention = bench.layout(made.own or bench.tokenizer), bench.attention(made.model)
        made.model.set_attn_implementation(made.attention.name)
        made.size = len(PROBE)
        found = made.judged(probes)
    except (MemcfgError, ValueError, TypeError, AttributeError, ImportError):
        found = torch.full_like(wanted, torch.nan)
    made.size = size
    limit = TOLERANCE.get(made.model.dtype, LOW_PRECISION)
    if not torch.allclose(found, wanted, rtol=limit, atol=limit * float(wanted.abs().max())):
        made.layout = made.attention = None
        made.model.set_attn_implementation(usual)


@torch.no_grad()
def alone(model: Any, ids: Tensor) -> Tensor:
    """The score that the classifier itself gives one document: float64 on the CPU [1]."""
    return model(input_ids=ids[None].to(model.device)).logits[:, 0].double().cpu()  # type: ignore[no-any-return]
