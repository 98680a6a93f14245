"""Each canary fails on the fault it watches for, names the option, and leaves everything as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from memcfg import RunError
from memcfg.batch import Batch
from memcfg.engine import canaries, isolation
from memcfg.engine.build import build
from memcfg.engine.trainer import EngineTrainer

pytestmark = pytest.mark.torch


def subject(bench: Any, folder: Path, hooks: Any = None, **plan: Any) -> canaries.Subject:
    run = build(bench.plan(**plan), hooks or bench.Hooks())
    trainer = EngineTrainer(run, folder)
    run.first = [batch.to(bench.DEVICE) for batch in trainer.loader.at(0, 0)]
    return canaries.Subject(run, run.model, run.optimizer, trainer.accelerator)


def seeing(name: str) -> Any:
    """An attention that gives the model an all-ones mask, which makes documents in a row see each other."""
    return lambda bench: bench.Attention(name, lambda batch: {"attention_mask": torch.ones_like(batch.input_ids)})


@pytest.mark.parametrize("layout", ["padded", "rows"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_sound_run_passes_every_canary(bench: Any, tmp_path: Path, attention: str, layout: str) -> None:
    found = canaries.check(subject(bench, tmp_path, batch_layout=layout, attention_implementation=attention))
    assert list(found) == ["supervised", "strategy", "optimizer", "isolation", "accumulation", "logits"]
    assert found["supervised"].endswith("targets in the first step")
    shared = layout == "rows"
    assert ("do not see each other" in found["isolation"]) is shared


def test_nothing_supervised(bench: Any, tmp_path: Path) -> None:
    hooks = bench.Hooks(bench.rows(masked=range(6)))
    with pytest.raises(RunError, match=r"`data.source`: the first step has no target"):
        canaries.check(subject(bench, tmp_path, hooks))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_documents_that_see_each_other(bench: Any, tmp_path: Path, attention: str) -> None:
    hooks = bench.Hooks(attention=lambda plan, model: seeing(attention)(bench))
    leaky = subject(bench, tmp_path, hooks, batch_layout="rows", attention_implementation=attention)
    with pytest.raises(RunError, match=f"`attention.implementation`: documents that share a row .* `{attention}`"):
        canaries.check(leaky)


def test_a_leak_in_eval_mode_alone_is_found(bench: Any, tmp_path: Path) -> None:
    made: list[Any] = []

    def inputs(batch: Batch) -> dict[str, Any]:
        return {} if made[0].training else {"attention_mask": torch.ones_like(batch.input_ids)}

    def attention(plan: Any, model: Any) -> Any:
        made.append(model)
        return bench.Attention("sdpa", inputs)

    leaky = subject(bench, tmp_path, bench.Hooks(attention=attention), batch_layout="rows")
    # the mask is asked for before the mode is set, so ask for it the way a forward does
    plain = leaky.run.model.forward
    leaky.run.model.forward = lambda **kwargs: plain(**{**kwargs, **inputs(leaky.run.first[0])})
    with pytest.raises(RunError, match="eval mode"):
        canaries.isolation(leaky)


def test_padded_rows_hold_one_document_each_and_are_exempt(bench: Any, tmp_path: Path) -> None:
    hooks = bench.Hooks(attention=lambda plan, model: seeing("sdpa")(bench))
    assert canaries.isolation(subject(bench, tmp_path, hooks)) == "no row holds two documents"


def test_where_no_row_of_the_first_step_is_shared_two_short_documents_are_made(bench: Any, tmp_path: Path) -> None:
    hooks = bench.Hooks(attention=lambda plan, model: seeing("sdpa")(bench))
    leaky = subject(bench, tmp_path, hooks, batch_layout="rows", run_batch_size=1)
    with pytest.raises(RunError, match=r"attention\.implementation"):
        canaries.isolation(leaky)


def test_one_token_documents_are_kept_apart_too(bench: Any, tmp_path: Path) -> None:
    """Positions 0, 0 do not drop: attention that looks for drops merges the two documents."""
    sound = subject(bench, tmp_path, bench.Hooks(bench.rows((3, 1, 4, 1, 1))), batch_layout="rows", run_batch_size=5)
    assert "do not see each other" in canaries.isolation(sound)


def test_a_parameter_that_no_optimizer_moves(bench: Any, tmp_path: Path) -> None:
    def optimizer(plan: Any, model: Any) -> Any:
        return torch.optim.SGD([p for n, p in model.named_parameters() if "norm" not in n], lr=0.1)

    with pytest.raises(RunError) as raised:
        canaries.check(subject(bench, tmp_path, bench.Hooks(optimizer=optimizer)))
    assert raised.value.problems[0].key == "optimizer.name"
    assert "leaves out 5 of 21 trainable parameters: `model.layers.0.input_layernorm.weight`" in str(raised.value)


def test_a_parameter_that_is_moved_twice(bench: Any, tmp_path: Path) -> None:
    sound = subject(bench, tmp_path)
    sound.optimizer.param_groups.append(dict(sound.optimizer.param_groups[0]))
    with pytest.raises(RunError, match="holds a parameter twice"):
        canaries.optimizer(sound)


def test_nothing_to_train(bench: Any, tmp_path: Path) -> None:
    sound = subject(bench, tmp_path)
    sound.run.model.requires_grad_(False)
    with pytest.raises(RunError, match="no parameter requires a gradient"):
        canaries.optimizer(sound)


@pytest.mark.parametrize(
    ("plan", "key", "because"),
    [
        ({"world_size": 2}, "world.size", "one process runs"),
        ({"distributed_strategy": "fsdp2"}, "distributed.strategy", "nothing shards the model"),
        ({"distributed_strategy": "zero3"}, "distributed.strategy", "DeepSpeed is not in force"),
    ],
)
def test_a_strategy_that_is_not_in_force(
    bench: Any, tmp_path: Path, plan: dict[str, Any], key: str, because: str
) -> None:
    with pytest.raises(RunError) as raised:
        canaries.strategy(subject(bench, tmp_path, **plan))
    assert raised.value.problems[0].key == key, because


def test_data_parallel_is_no_strategy(bench: Any, tmp_path: Path) -> None:
    sound = subject(bench, tmp_path)
    wrapped = canaries.Subject(sound.run, torch.nn.DataParallel(sound.model), sound.optimizer, sound.accelerator)
    with pytest.raises(RunError, match=r"distributed\.strategy"):
        canaries.strategy(wrapped)


def test_canaries_leave_no_trace(bench: Any, tmp_path: Path) -> None:
    def with_dropout(plan: Any, device: str) -> Any:
        return bench.model(attention_dropout=0.3)

    hooks = bench.Hooks(load_model=with_dropout)
    sound = subject(bench, tmp_path, hooks, batch_layout="rows")
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    before = {name: p.clone() for name, p in sound.model.named_parameters()}
    sound.model.train()
    canaries.check(sound)
    assert torch.equal(torch.rand(4), expected), "the random streams moved"
    assert sound.model.training
    assert all(p.grad is None and torch.equal(p, before[n]) for n, p in sound.model.named_parameters())


def test_micro_batches_that_do_not_add_up(bench: Any, tmp_path: Path) -> None:
    class Mean(bench.Objective):  # type: ignore[misc, name-defined]
        """A mean where a sum is wanted: right for one document, wrong for two."""

        def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
            return super().loss_sum(model, batch) / len(batch.lengths)  # type: ignore[no-any-return]

    class Rows(bench.Objective):  # type: ignore[misc, name-defined]
        def count(self, batch: Batch) -> int:
            return 1

    for wrong, text in ((Mean, "have a loss of"), (Rows, "count 1 in one micro-batch and 2 in two")):
        hooks = bench.Hooks(objective=lambda plan, wrong=wrong: wrong())
        with pytest.raises(RunError, match=rf"`run\.accumulation`: two documents {text}"):
            canaries.accumulation(subject(bench, tmp_path, hooks))


def test_a_loss_that_builds_whole_logits_though_its_kernel_should_not(bench: Any, tmp_path: Path) -> None:
    asked = {"loss_kernel": "torch", "loss_chunk_mib": 0}
    with pytest.raises(RunError, match=r"`loss\.kernel`: the loss held the logits of all 14 tokens x 40 words at once"):
        canaries.logits(subject(bench, tmp_path, **asked))

    class Chunked(bench.Head):  # type: ignore[misc, name-defined]
        def loss_sum(self, model: Any, hidden: torch.Tensor, labels: torch.Tensor, loss: Any) -> torch.Tensor:
            parts = [model.lm_head(hidden[:, i : i + 3]).logsumexp(-1).sum() for i in range(0, hidden.shape[1], 3)]
            return torch.stack(parts).sum()

    hooks = bench.Hooks(head=lambda plan, model: Chunked())
    assert canaries.logits(subject(bench, tmp_path, hooks, **asked)) == "never 14 tokens x 40 words at once"


def test_a_kernel_that_chooses_its_chunk_may_hold_what_the_weight_takes(bench: Any, tmp_path: Path) -> None:
    """As the default on a GPU does: the plan's chunk is null."""
    found = canaries.logits(subject(bench, tmp_path, loss_kernel="torch", loss_chunk_mib=None))
    assert found == "not looked at: all logits of a micro-batch fit into a chunk"


def test_the_plain_kernel_may_build_them(bench: Any, tmp_path: Path) -> None:
    assert "whole logits" in canaries.logits(subject(bench, tmp_path, loss_kernel="full"))


@pytest.mark.parametrize("limit", [2, 3, 5, 16])
def test_what_the_canaries_make_is_no_longer_than_a_document_may_be(bench: Any, tmp_path: Path, limit: int) -> None:
    about = subject(bench, tmp_path, truncation_max_length=None)
    run = about.run
    run.plan = {**run.plan, "truncation.max_length": limit}  # type: ignore[assignment]
    documents = canaries._two_documents(about)
    assert documents is None or max(documents.lengths()) <= limit
    probe = isolation.probe(run, run.first[0])
    assert max(probe.lengths) <= limit
