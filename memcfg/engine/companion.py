"""A second, frozen model beside the one that is trained: a reference, or a teacher."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from memcfg.arriving import arrive
from memcfg.engine.forward import VIRTUAL, attach_head, causal_model
from memcfg.errors import MemcfgError, Problem, RunError
from memcfg.solver.decision import Decision

if TYPE_CHECKING:
    from memcfg.batch import Attention, Load
    from memcfg.plan import Plan
    from memcfg.registry.hooks import Hooks


def loaded(
    plan: Plan, hooks: Hooks, device: str, attention: Attention, path: str, key: str
) -> tuple[torch.nn.Module, Any]:
    """The model saved in `path` (a folder or a name on the hub), frozen, with attention and head as the plan has them, and
    its tokenizer.

    Errors name `key`, the option that gave the path."""
    place = {"model.source": Decision("hub", "default"), "model.path": Decision(path, "default")}
    other = replace(plan, decisions={**plan.decisions, **place})
    try:
        tokenizer = hooks.load_tokenizer(plan=other)
        model: Any = hooks.load_model(plan=other, device=device)
    except MemcfgError as error:
        error.problems = tuple(replace(p, key=key) if p.key == "model.path" else p for p in error.problems)
        raise
    model.set_attn_implementation(attention.name)
    model = hooks.companion(plan=plan, model=model, key=key)
    arrive(model)
    attach_head(model, hooks.head(plan=other, model=model))
    return frozen(model), tokenizer


def alike(load: Load, tokenizer: Any, role: str, path: str, key: str) -> tuple[torch.nn.Module, Any]:
    """`load(path, key)`, held to the trained model's tokenizer. Raises `RunError` where they name a token differently."""
    model, other = load(path, key)
    same_tokens(tokenizer, other, role, path, key)
    return model, other


def same_tokens(mine: Any, its: Any, role: str, path: str, key: str) -> None:
    """Raises `RunError` where a token of the trained model is another one of the model in `path`, which is its `role`."""
    words, others = mine.get_vocab(), its.get_vocab()
    if words == others:
        return
    different = next(word for word in {**words, **others} if words.get(word) != others.get(word))
    number = lambda known: f"token {known[different]}" if different in known else "no token"  # noqa: E731
    text = (
        f"the tokenizers differ: `{different}` is {number(others)} of the {role} `{path}` and {number(words)} of the "
        "model that is trained"
    )
    raise RunError(Problem(text, key=key, fix=f"take a {role} with the same tokenizer"))


def copied(model: torch.nn.Module) -> torch.nn.Module:
    """A frozen copy of the model as it is now."""
    return frozen(copy.deepcopy(model))


def frozen(model: torch.nn.Module) -> torch.nn.Module:
    return model.requires_grad_(False).eval()


@contextmanager
def bare(model: torch.nn.Module, *, adapter: bool = False) -> Iterator[torch.nn.Module]:
    """The model itself in eval mode, without gradients, and without its adapter where it has one, unless `adapter`."""
    inner: Any = model
    while isinstance(getattr(inner, "module", None), torch.nn.Module):
        inner = inner.module
    training = inner.training
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if hasattr(inner, "disable_adapter") and not adapter:
            stack.enter_context(inner.disable_adapter())
            stack.enter_context(_without_virtual_tokens(causal_model(inner)))
        inner.eval()
        try:
            yield inner
        finally:
            inner.train(training)


@contextmanager
def _without_virtual_tokens(model: torch.nn.Module) -> Iterator[None]:
    """An adapter that is off puts no trained tokens before the rows either."""
    count = getattr(model, VIRTUAL, 0)
    setattr(model, VIRTUAL, 0)
    try:
        yield
    finally:
        setattr(model, VIRTUAL, count)
