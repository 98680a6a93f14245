"""vLLM behind a server."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch

from memcfg import Away, Problem, RunError
from memcfg.rollouts import Sample
from memcfg_vllm.client import Client
from memcfg_vllm.engine import ENDED
from memcfg_vllm.teams import agreed, met

AT_ONCE = 64
"""Requests in flight; vLLM batches them itself."""


class Transfer(Protocol):
    """Sends the model's weights to the server's workers. Every process of the trainer calls it."""

    def send(self, model: torch.nn.Module) -> None: ...

    def close(self) -> None: ...


class Served:
    """A backend behind a `Client`. `first`: whether this process speaks for all of them."""

    def __init__(self, client: Client, transfer: Transfer, name: str, *, first: bool = True) -> None:
        self.client, self.transfer, self.name, self.first = client, transfer, name, first

    def wake(self, part: str) -> None:
        """A server is always awake."""

    def sleep(self) -> None:
        """It shares no memory with the trainer."""

    def load(self, model: torch.nn.Module) -> None:
        """All processes together: none changes weights while another's prompts are completed, and none goes on with its own
        before the cache of the older weights is dropped."""
        met()
        self.transfer.send(model)
        agreed(self._forget, first=self.first)

    def _forget(self) -> None:
        done = self.client.ask("/reset_prefix_cache", {})
        if isinstance(done, dict) and done.get("success") is False:
            text = f"the vLLM server at `{self.client.url}` still holds what older weights computed: it is in use"
            raise RunError(Problem(text, key="vllm.server_url", fix="give the run a server of its own"))

    def complete(self, prompts: Sequence[Sequence[int]], requests: Sequence[dict[str, Any]]) -> list[Sample | None]:
        """A request for each prompt: several prompts in one would share its seed."""
        with ThreadPoolExecutor(min(AT_ONCE, len(prompts))) as pool:
            return list(pool.map(self._completed, prompts, requests))

    def _completed(self, prompt: Sequence[int], request: dict[str, Any]) -> Sample | None:
        asked = {name: value for name, value in request.items() if name not in ("regex", "detokenize")}
        if request.get("regex") is not None:
            asked["structured_outputs"] = {"regex": request["regex"]}
        body = {"model": self.name, "prompt": list(prompt), "return_token_ids": True, **asked}
        answer = self.client.ask("/v1/completions", body)
        try:
            (choice,) = answer["choices"]
            if choice["finish_reason"] not in ENDED:
                return None
            scores = [float(score) for score in choice["logprobs"]["token_logprobs"]]
            ids = list(choice["token_ids"])
            if any(type(token) is not int for token in ids):
                raise TypeError("a token id is a whole number")
            return Sample(ids, ENDED[choice["finish_reason"]], scores)
        except (KeyError, TypeError, ValueError) as error:
            text = f"the vLLM server at `{self.client.url}` sent no token ids with log-probabilities"
            raise Away(Problem(text, key="vllm.server_url", fix="it must be vLLM 0.22 or newer")) from error

    def close(self) -> None:
        self.transfer.close()
