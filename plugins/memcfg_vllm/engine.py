"""Every call to the vllm package, and nothing else. `memcfg_vllm.contract` lists the names and arguments used here; a test
holds both against each other, and against a vllm that is installed or unpacked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from memcfg.rollouts import Sample

Named = Iterator[tuple[str, torch.Tensor]]
ENDED = {"stop": True, "length": False}
"""Reasons why a completion ended: by itself, or at its limit. Any other means that it was not completed."""
KEPT: list[Any] = []
"""Engines that are closed and must not be collected."""


class Engine:
    """vLLM in this process. `folder` holds the configuration alone: weights are given by `load`, never read from a file.

    Not `alone`, it is one of several that a launcher started: `tensor_parallel_size` neighbours make one engine, each
    holds a part of the weights, and all of them are called with the same prompts."""

    def __init__(self, folder: str, *, alone: bool, **settings: Any) -> None:
        # the engine in this very process, so that tensors are handed over and not sent
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import LLM

        backend = "uni" if alone else "external_launcher"
        self._alone = alone
        self._llm = LLM(
            model=folder, load_format="dummy", distributed_executor_backend=backend, generation_config="vllm",
            logprobs_mode="processed_logprobs", **settings,
        )  # fmt: skip

    def sleep(self) -> None:
        """Give all memory back. The weights are dropped, not kept on the host: the next round brings its own."""
        self._llm.sleep(level=2)

    def wake(self, part: str) -> None:
        """`weights` or `cache`."""
        torch.cuda.empty_cache()
        self._llm.wake_up(tags=["kv_cache" if part == "cache" else part])

    def load(self, weights: Named) -> None:
        """Take over weights in place, layer by layer, as they would be read from a checkpoint."""
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})

    def forget(self) -> bool:
        """Drop what the cache knows of prompts, which older weights computed; whether that was possible."""
        return bool(self._llm.reset_prefix_cache())

    def complete(self, prompts: Sequence[Sequence[int]], requests: Sequence[dict[str, Any]]) -> list[Sample | None]:
        """A completion for each prompt, by its own request; None for one that was not completed."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        asked = []
        for request in requests:
            regex = request.get("regex")
            held = {} if regex is None else {"structured_outputs": StructuredOutputsParams(regex=regex)}
            asked.append(SamplingParams(**{n: v for n, v in request.items() if n != "regex"}, **held))
        given = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        return [_sample(found) for found in self._llm.generate(given, sampling_params=asked, use_tqdm=False)]

    def close(self) -> None:
        """Give everything back. One of several keeps its part until the process ends: vLLM would end torch's process group
        with it, and the run has yet to save its model through that."""
        core = self._llm.llm_engine.engine_core
        if self._alone:
            core.shutdown()
            return
        KEPT.append(self._llm)
        if (at_exit := getattr(core, "_finalizer", None)) is not None:
            at_exit.detach()  # it would end groups that are gone by then, and say so with a traceback


def _sample(found: Any) -> Sample | None:
    (output,) = found.outputs
    if output.finish_reason not in ENDED:
        return None
    ids = list(output.token_ids)
    scores = [float(row[token].logprob) for token, row in zip(ids, output.logprobs, strict=True)]
    return Sample(ids, ENDED[output.finish_reason], scores)


def sender(url: str, address: str, port: int, world: int, rank: int, weights: Any, timeout: float) -> Any:
    """What sends weights to a server's workers over NCCL: `send_weights()`, on every process of the trainer.

    `weights` gives `metadata()`, a list of (name, dtype, shape), and iterates over (name, tensor)."""
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource
    from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo, NCCLTrainerWeightTransferEngine

    class Source(WeightSource):  # type: ignore[misc]
        def metadata(self) -> Any:
            return [ParamMeta(name=name, dtype=dtype, shape=shape) for name, dtype, shape in weights.metadata()]

        def __iter__(self) -> Named:
            return iter(weights)

    return NCCLTrainerWeightTransferEngine.trainer_init(
        NCCLTrainerInitInfo(master_address=address, master_port=port, world_size=world, rank=rank),
        client=HTTPVLLMWeightSyncClient(base_url=url, timeout=timeout), source=Source(),
    )  # fmt: skip
