"""Two processes take the steps of one: the same losses, gradients, weights and counts, under every strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

STRATEGIES = ("ddp", "fsdp2", "zero2", "zero3")
PADDED = ()
PACKED = ("packing=bfd_split", "truncation.max_length=24")
FREE = ("padding_free=on", "run.batch_size=2")
TIED = ("model.tied=true",)
NLL = ("loss.type=nll",)

# name: overrides, micro-batches of each rank in a step
CASES: dict[str, tuple[tuple[str, ...], int]] = {
    "padded": (PADDED, 2),
    "packed": (PACKED, 1),
    "padding-free": (FREE, 1),
    "tied": ((*TIED, "checkpointing=none"), 2),
    "whole logits": ((*NLL, *TIED), 1),
    "dpo": (("trainer=dpo", "loss.kernel=torch", "run.max_grad_norm=null", "run.learning_rate=0.2"), 1),
}
"""DPO's gradients are so long that they would be clipped, by a norm that is rounded otherwise over shards (3e-6 of it)."""
QUICK = [
    ("ddp", "padded"),
    ("ddp", "dpo"),
    ("fsdp2", "padded"),
    ("fsdp2", "tied"),
    ("zero2", "packed"),
    ("zero3", "padded"),
    ("zero3", "tied"),
]
FULL = [(strategy, case) for strategy in STRATEGIES for case in CASES]
MORE: list[tuple[str, str]] = [pair for pair in FULL if pair not in QUICK]


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, compared: Callable[[Sequence[Any]], Any], case_of: Callable[..., Any]) -> Any:
    """Everything that the selected tests ask for, trained in one go."""
    wanted = {
        item.callspec.params["pair"]
        for item in request.session.items
        if "pair" in getattr(getattr(item, "callspec", None), "params", {})
    }
    return compared(
        [(strategy, case_of(name, *CASES[name])) for strategy, name in (*QUICK, *MORE) if (strategy, name) in wanted]
    )


@pytest.mark.parametrize(
    "pair", [*QUICK, *(pytest.param(pair, marks=pytest.mark.distributed) for pair in MORE)], ids=" ".join
)
def test_two_processes_take_the_steps_of_one(pair: tuple[str, str], found: Any) -> None:
    one, two = found[pair]
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-6)
    assert two["eval_loss"] == pytest.approx(one["eval_loss"], rel=1e-6)
    assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-5)
    assert two["more"] == pytest.approx(one["more"], rel=1e-5, abs=1e-6)
    assert two["weights"].keys() == one["weights"].keys()
    assert two["numbers"] == one["numbers"], "whole tensors are saved, not shards"
    for name, weights in one["weights"].items():
        assert two["weights"][name] == pytest.approx(weights, abs=1e-6), name
        assert two["sums"][name] == pytest.approx(one["sums"][name], abs=1e-4), name
    assert two["ledger"]["tokens_seen"] >= one["ledger"]["tokens_seen"] > 0
    assert two["effective"]["distributed.strategy"]["effective"] == pair[0]
