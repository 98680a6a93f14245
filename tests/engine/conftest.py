"""A tiny engine bench: a two-layer Llama, a word tokenizer, rows of numbers, and hooks that know no technique.

The hooks are written here, not taken from plugins: what the engine does must not depend on any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from memcfg import PluginError
from memcfg.batch import Batch, Documents
from memcfg.engine.ledger import Ledger
from memcfg.plan import Decision, Plan

VOCABULARY = 40
LENGTHS = (9, 3, 7, 5, 12, 4)
"""Six rows; after the shift, with the first two labels of each masked, 40 - 12 = 28 targets."""

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""Where plans of the bench train: on a machine with a GPU, what is tested is the path that a GPU takes."""

SETTINGS: dict[str, Any] = {
    "device.type": DEVICE, "world.size": 1, "trainer.name": "sft", "loss.type": "nll", "batch.layout": "padded",
    "attention.implementation": "sdpa", "optimizer.name": "adamw", "run.steps": 4, "run.batch_size": 2,
    "run.accumulation": 1, "run.learning_rate": 1e-2, "run.scheduler": "constant", "run.warmup_steps": 0,
    "run.max_grad_norm": 1.0, "run.seed": 0, "run.log_steps": 2, "run.save_steps": None, "run.eval_steps": None,
    "run.resume": None,
}  # fmt: skip


FREE = {
    "run.steps",
    "run.log_steps",
    "run.save_steps",
    "run.eval_steps",
    "run.keep_checkpoints",
    "run.resume",
    "run.report_to",
    "run.on_oom",
}
"""What may change when a run goes on from a checkpoint; `test_resume.py` holds it to what memcfg's options say."""


def plan(**overrides: Any) -> Plan:
    """A plan with these values; `run_steps=3` sets `run.steps`."""
    values = SETTINGS | {key.replace("_", ".", 1): value for key, value in overrides.items()}
    return Plan({key: Decision(value, "default", free=key in FREE) for key, value in values.items()})


def rows(lengths: Sequence[int] = LENGTHS, *, masked: Sequence[int] = (), seed: int = 1) -> datasets.Dataset:
    """Random rows; the first two labels of each are masked, and all labels of the rows in `masked`."""
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(4, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]
    labels = [[-100] * len(x) if i in masked else [-100, -100, *x[2:]] for i, x in enumerate(ids)]
    return datasets.Dataset.from_dict({"input_ids": ids, "labels": labels})


def tokenizer() -> PreTrainedTokenizerFast:
    words = {f"w{i}": i for i in range(VOCABULARY)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), eos_token="w1", pad_token="w2"
    )


def model(dtype: torch.dtype = torch.float32, **config: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **{**sizes, **config})).to(dtype).train()


def collate(batch: list[dict[str, Any]]) -> Documents:
    ids = [torch.tensor(row["input_ids"]) for row in batch]
    labels = [torch.tensor(row["labels"]) for row in batch]
    return Documents(ids, labels, [[i] for i in range(len(ids))])


def padded(documents: Documents) -> Batch:
    """One document in a row."""
    return lay(documents, [[i] for i in range(len(documents.input_ids))], "padded")


def in_rows(documents: Documents) -> Batch:
    """All documents in one row, positions restarting."""
    return lay(documents, [[*range(len(documents.input_ids))]], "rows")


def lay(documents: Documents, where: list[list[int]], layout: str) -> Batch:
    length = max(sum(len(documents.input_ids[i]) for i in row) for row in where)
    fills = {"ids": 2, "labels": -100, "positions": 0, "documents": -1}
    tensors = {name: torch.full((len(where), length), fill) for name, fill in fills.items()}
    for line, row in enumerate(where):
        at = 0
        for index in row:
            size = len(documents.input_ids[index])
            tensors["ids"][line, at : at + size] = documents.input_ids[index]
            tensors["labels"][line, at + 1 : at + size] = documents.labels[index][1:]
            tensors["positions"][line, at : at + size] = torch.arange(size)
            tensors["documents"][line, at : at + size] = index
            at += size
    lengths = [len(documents.input_ids[i]) for row in where for i in row]
    return Batch(*tensors.values(), layout=layout, lengths=lengths)


class Attention:
    """Transformers' own: separates documents by restarting positions, given no 2-D mask and no cache."""

    def __init__(self, name: str = "sdpa", inputs: Callable[[Batch], dict[str, Any]] = lambda batch: {}) -> None:
        self.name, self.inputs = name, inputs


class Head:
    """Whole logits."""

    def logits(self, model: Any, hidden: torch.Tensor) -> torch.Tensor:
        return model.lm_head(hidden)

    def loss_sum(self, model: Any, hidden: torch.Tensor, labels: torch.Tensor, loss: Any) -> torch.Tensor:
        logits = self.logits(model, hidden)[:, :-1].flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=-100, reduction="sum")


class Objective:
    """Summed token loss."""

    def bind(self, loss: Any, attention: Any) -> None:
        self.loss, self.attention = loss, attention

    def count(self, batch: Batch) -> int:
        return int((batch.labels[:, 1:] != -100).sum())

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        return model(
            **batch.inputs,
            **self.attention.inputs(batch),
            head_call=lambda head, inner, hidden: head.loss_sum(inner, hidden, batch.labels, self.loss),
        )

    def metrics(self) -> dict[str, float]:
        return {}


class FakeHooks:
    """The hooks of the bench. Each can be replaced: `FakeHooks(optimizer=lambda plan, model: ...)`."""

    def __init__(self, train: Any = None, held_out: Any = None, **replaced: Any) -> None:
        self.data = {"train": rows() if train is None else train, "eval": held_out}
        self.calls: list[str] = []
        self._replaced = replaced

    def require(self, *hooks: str) -> None:
        """As the real ones: the error of a hook that would raise one, before anything is done."""
        for hook in hooks:
            if isinstance(missing := self._replaced.get(hook), PluginError):
                raise missing

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(**arguments: Any) -> Any:
            self.calls.append(f"{name}:{arguments['split']}" if "split" in arguments else name)
            hook = self._replaced.get(name) or getattr(type(self), f"do_{name}")
            return hook(self, **arguments) if name not in self._replaced else hook(**arguments)

        return call

    def do_load_tokenizer(self, plan: Plan) -> Any:
        return tokenizer()

    def do_load_dataset(self, plan: Plan, split: str, ledger: Ledger) -> Any:
        return self.data[split]

    def do_prepare_dataset(self, plan: Plan, dataset: Any, tokenizer: Any, ledger: Ledger, split: str) -> Any:
        tokens = sum(len(ids) for ids in dataset["input_ids"])
        ledger.add(rows_in=len(dataset), tokens_in=tokens, tokens_kept=tokens, tokens_supervised=tokens)
        return dataset

    def do_grouping(self, plan: Plan, grouping: Any) -> Any:
        return grouping

    def do_collator(self, plan: Plan, tokenizer: Any) -> Any:
        return collate

    def do_layout(self, plan: Plan, tokenizer: Any) -> Any:
        return {"padded": padded, "rows": in_rows}[plan["batch.layout"]]

    def do_load_model(self, plan: Plan, device: str) -> Any:
        return model().to(device)

    def do_attention(self, plan: Plan, model: Any) -> Any:
        return Attention(plan["attention.implementation"])

    def do_patch_model(self, plan: Plan, model: Any) -> Any:
        return model

    def do_export(self, plan: Plan, model: Any) -> Any:
        return model

    def do_head(self, plan: Plan, model: Any) -> Any:
        return Head()

    def do_loss(self, plan: Plan) -> Any:
        return object()

    def do_objective(self, plan: Plan) -> Any:
        return Objective()

    def do_optimizer(self, plan: Plan, model: Any) -> Any:
        return torch.optim.AdamW(model.parameters(), lr=plan["run.learning_rate"], weight_decay=0.0)

    def do_spread(self, plan: Plan) -> Any:
        return None

    def do_step_context(self, plan: Plan, model: Any, contexts: list[Any]) -> list[Any]:
        return contexts

    def do_evidence(self, plan: Plan, run: Any, found: list[Any]) -> list[Any]:
        return found


class Told:
    """A reporter that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def stage(self, text: str) -> None:
        self.said.append(("stage", text))

    def note(self, text: str) -> None:
        self.said.append(("note", text))

    def begin(self, steps: int) -> None:
        self.said.append(("begin", steps))

    def advance(self, step: int, values: Any) -> None:
        self.said.append(("advance", step, dict(values)))

    def end(self) -> None:
        self.said.append(("end",))


@pytest.fixture(autouse=True)
def _quick_threads() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def bench() -> SimpleNamespace:
    """Everything above by name, for tests (a conftest cannot be imported)."""
    return SimpleNamespace(
        plan=plan, rows=rows, model=model, tokenizer=tokenizer, collate=collate, padded=padded, in_rows=in_rows,
        lay=lay, Attention=Attention, Head=Head, Objective=Objective, Hooks=FakeHooks, Told=Told, LENGTHS=LENGTHS, DEVICE=DEVICE,
    )  # fmt: skip
