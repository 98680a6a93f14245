"""vLLM in the training process."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memcfg import Plan, Problem, RunError
from memcfg.engine.forward import causal_model
from memcfg.rollouts import Sample
from memcfg_vllm.engine import Engine
from memcfg_vllm.weights import current, described, dtype_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCHED_TOKENS = 4096
"""Tokens of prompts that vLLM works on at a time: what it sets aside for its activations follows from it."""


class Colocated:
    """A backend around an `Engine`. `freed`: the most bytes of the GPU that going to sleep gave back."""

    def __init__(self, engine: Any, folder: Path | None = None) -> None:
        self.engine, self._folder = engine, folder
        self.freed = 0

    def wake(self, part: str) -> None:
        self.engine.wake(part)

    def load(self, model: torch.nn.Module) -> None:
        weights = current(model)
        try:
            self.engine.load(weights)
        finally:
            for _ in weights:  # where it failed, the other processes still gather the rest together with this one
                pass
        if not self.engine.forget():
            text = "vLLM still holds what older weights computed of some prompts"
            raise RunError(Problem(text, key="generation.backend"))

    def complete(self, prompts: Sequence[Sequence[int]], requests: Sequence[dict[str, Any]]) -> list[Sample | None]:
        found: list[Sample | None] = self.engine.complete(prompts, requests)
        return found

    def sleep(self) -> None:
        before = _free()
        self.engine.sleep()
        self.freed = max(self.freed, _free() - before)

    def close(self) -> None:
        engine, self.engine = self.engine, None
        if engine is not None:
            engine.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def made(plan: Plan, model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase) -> Colocated:
    """vLLM set up for the model's architecture, without weights; asleep where `vllm.sleep` is on. Raises `RunError`."""
    inner: Any = causal_model(model)
    folder = Path(tempfile.mkdtemp(prefix="memcfg-vllm-"))
    described(inner).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    try:
        with random_kept():  # vLLM seeds the whole process
            engine = Engine(
                str(folder), alone=plan.get("world.size", 1) == 1, dtype=str(dtype_of(inner)).removeprefix("torch."),
                tensor_parallel_size=plan["vllm.tensor_parallel"],
                gpu_memory_utilization=plan["vllm.gpu_memory_utilization"],
                max_model_len=plan["vllm.max_model_length"], enable_sleep_mode=plan["vllm.sleep"],
                model_impl=plan["vllm.model_impl"], seed=plan["run.seed"], max_num_batched_tokens=BATCHED_TOKENS,
                trust_remote_code=plan["model.trust_remote_code"], runner="generate",
                enforce_eager=plan.device == "cpu",  # compiling takes minutes there, and gains little
            )  # fmt: skip
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        text = " ".join(str(error).split())
        raise RunError(
            Problem(f"vLLM cannot be set up: {type(error).__name__}: {text}", key="generation.backend")
        ) from error
    found = Colocated(engine, folder)
    if plan["vllm.sleep"]:
        found.sleep()
    return found


@contextmanager
def random_kept() -> Iterator[None]:
    """Every random stream of this process is put back as it was."""
    python, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy_state)


def _free() -> int:
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0
