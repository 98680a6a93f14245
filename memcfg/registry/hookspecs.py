"""The hooks a plugin may implement. This file is the reference: it reads from top to bottom as documentation.

*Exclusive* hooks are bound to a selector option: only the plugin that implements the option's resolved value is called.
*Chain* hooks are called one plugin at a time, the result of one feeding the next through the named parameter, in the
order that the implementations declare with `hookimpl(consumes=..., produces=...)`.

Implementations are decorated with `memcfg.hookimpl` and take any subset of the named parameters. They live in the
plugin's `hooks` module, which may import torch; this file imports it for type checkers only.

A `Batch` is one micro-batch after layout and a `Documents` the ragged form before it: see `memcfg.batch`.
"""

# mypy: disable-error-code="empty-body"
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memcfg.registry._markers import chain, exclusive

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import datasets
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from memcfg.batch import Attention, Grouping, Head, Layout, Load, Objective, Reference, TokenLoss
    from memcfg.engine.evidence import Effective
    from memcfg.engine.ledger import Ledger
    from memcfg.engine.spread import Spread
    from memcfg.judging import Bench, Judge, Reward
    from memcfg.plan import Plan
    from memcfg.rollouts import Generation


# ------------------------------------------------------------------------------------------------------- model


@exclusive("model.source")
def memcfg_load_tokenizer(plan: Plan) -> PreTrainedTokenizerBase:
    """The tokenizer, without loading the model."""


@exclusive("model.source")
def memcfg_load_model(plan: Plan, device: str) -> PreTrainedModel:
    """The model on `device` (`cpu`, `cuda` or `meta`), in the plan's dtype, in train mode."""


@chain("model")
def memcfg_patch_model(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model with this technique applied: adapters, kernels, checkpointing. Returns the model (the same or another)."""


@chain("model")
def memcfg_companion(plan: Plan, model: torch.nn.Module, key: str) -> torch.nn.Module:
    """A second, frozen model (a reference, a teacher) as it was loaded, with this technique applied. `key` is the option that
    named it. Returns the model."""


@chain("model")
def memcfg_export(plan: Plan, model: torch.nn.Module) -> torch.nn.Module:
    """The model as the run's `model` folder will hold it: adapters merged, weights unpacked. Called once, after training."""


# -------------------------------------------------------------------------------------------------------- data


@exclusive("data.source")
def memcfg_load_dataset(plan: Plan, split: str, ledger: Ledger) -> datasets.Dataset | datasets.IterableDataset | None:
    """The raw rows of `split` ("train" or "eval"); None where the source has no evaluation rows. Rows that could not be
    read go into the ledger. Evaluation rows are never a stream. Raises `DataError`."""


@chain("dataset")
def memcfg_prepare_dataset(
    plan: Plan,
    dataset: datasets.Dataset | datasets.IterableDataset,
    tokenizer: PreTrainedTokenizerBase,
    ledger: Ledger,
    split: str,
) -> datasets.Dataset | datasets.IterableDataset:
    """Tokenised, truncated, packed rows. The agreed columns are in `memcfg.batch`. What is lost goes into the ledger."""


@exclusive("trainer.name")
def memcfg_collator(plan: Plan, tokenizer: PreTrainedTokenizerBase) -> Any:
    """A callable `list[row] -> Documents`: the ragged documents of one micro-batch with the trainer's own fields."""


@chain("grouping")
def memcfg_grouping(plan: Plan, grouping: Grouping | None) -> Grouping | None:
    """Which rows make a micro-batch. Where nobody says, `grouping` is None: `run.batch_size` rows, as they come."""


@exclusive("batch.layout")
def memcfg_layout(plan: Plan, tokenizer: PreTrainedTokenizerBase) -> Layout:
    """A callable `Documents -> Batch`: tensors from ragged documents."""


# ---------------------------------------------------------------------------------------------------- the step


@exclusive("trainer.name")
def memcfg_objective(plan: Plan) -> Objective:
    """What is minimised: `count(batch)`, `loss_sum(model, batch)` and the metrics it logs."""


@exclusive("loss.kernel")
def memcfg_head(plan: Plan, model: torch.nn.Module) -> Head:
    """Log-probabilities and fused losses from hidden states. Called inside the wrapped model's own forward."""


@exclusive("loss.type")
def memcfg_loss(plan: Plan) -> TokenLoss:
    """A function of each token's log-probability, with its derivative (SFT)."""


@exclusive("reference.mode")
def memcfg_reference(plan: Plan, model: torch.nn.Module, load: Load) -> Reference:
    """Where the frozen reference's log-probabilities come from. `model` is the built model before its first step;
    `load(path, key)` loads another one with its tokenizer, frozen (`key`: the option that an error should name), and refuses
    one whose tokens are others."""


@exclusive("attention.implementation")
def memcfg_attention(plan: Plan, model: torch.nn.Module) -> Attention:
    """The attention implementation to select on the model, and the mask inputs it needs for a batch."""


@chain("contexts")
def memcfg_step_context(
    plan: Plan, model: torch.nn.Module, contexts: list[AbstractContextManager[Any]]
) -> list[AbstractContextManager[Any]]:
    """Context managers, re-enterable, that the engine enters around forward and backward. Returns `contexts` with its own added."""


@exclusive("optimizer.name")
def memcfg_optimizer(plan: Plan, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer over the parameters that require gradients."""


@exclusive("distributed.strategy")
def memcfg_spread(plan: Plan) -> Spread:
    """How several processes share the work. Called only where `distributed.strategy` is not `none`."""


@exclusive("generation.backend")
def memcfg_generate(plan: Plan, model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase) -> Generation:
    """What samples completions for trainers that learn from their own. `model` is the built model, not yet wrapped."""


@chain("contexts")
def memcfg_sampling_context(
    plan: Plan,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    contexts: list[AbstractContextManager[Any]],
) -> list[AbstractContextManager[Any]]:
    """Context managers, re-enterable, that the engine enters around each round of sampling, the first one outermost: to
    gather the model's weights, to lay aside what only training needs. `model` and `optimizer` are as training has them,
    wrapped. Returns `contexts` with its own added."""


@chain("found")
def memcfg_rewards(plan: Plan, found: list[Reward | Judge], bench: Bench) -> list[Reward | Judge]:
    """Reward functions and pairwise judges by name, which `rewards.functions`, `rewards.models` and a trainer's own options
    choose from: `memcfg.judging` says what they are given and give. `bench` is what a model that judges is run with. Returns
    `found` with its own added."""


# ------------------------------------------------------------------------------------------------ what was real


@chain("stands_in")
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Stand-ins for what leaves torch's dispatcher, for the memory simulator: `package.module:attribute` -> what takes its
    place, `rows` -> a function from the lengths of the documents in each row of a micro-batch to rows as the trainer's
    collator takes them, `documents` -> how many documents each of those becomes (2 of a pair), and `generation` -> a
    function from what `memcfg_generate` gave to what samples in its place."""


@chain("found")
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """Effective values read back from the live run (`memcfg.engine.build.Run`) once its first step has run; a value that
    differs from the plan's stops the run. Returns `found` with its own added."""
