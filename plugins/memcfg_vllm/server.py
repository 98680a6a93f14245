"""vLLM behind a server: its HTTP interface, and two ways to send weights there."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import torch

from memcfg import Away, Problem, RunError
from memcfg.rollouts import Sample
from memcfg_vllm.engine import ENDED

AT_ONCE = 64
"""Requests in flight; vLLM batches them itself."""
TRIES = 3
"""How often a connection is tried before the server counts as away."""
START = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs"


class Client:
    """One server. `timeout`: how long to wait for it to come up, and for one answer, in seconds."""

    def __init__(self, url: str, timeout: float, pause: float = 1.0) -> None:
        self.url, self.timeout, self.pause = url.rstrip("/"), timeout, pause

    def wait(self) -> str:
        """Wait until the server is up; the name of the model that it serves. Raises `RunError` after `timeout`."""
        until = time.monotonic() + self.timeout
        while (trouble := self._trouble()) is not None:
            if time.monotonic() >= until:
                text = f"no vLLM server answers at `{self.url}` (waited {self.timeout:g} s): {trouble}"
                fix = f"start one: {START}; or say where it is: vllm.server_url=URL"
                raise RunError(Problem(text, key="vllm.server_url", fix=fix))
            time.sleep(self.pause)
        return str(self.ask("/v1/models")["data"][0]["id"])

    def ask(self, path: str, body: Any = None) -> Any:
        """The answer to a GET, or to a POST of `body`, read as JSON. Raises `RunError` for a server that is away, or that
        does not do what was asked."""
        try:
            text = self._patiently(path, body)
        except HTTPError as error:
            raise self._refused(path, error) from error
        except (OSError, HTTPException) as error:
            text = f"the vLLM server at `{self.url}` no longer answers: {_reason(error)}"
            raise Away(Problem(text, key="vllm.server_url", fix="start it again, then the run")) from error
        try:
            return json.loads(text) if text.strip() else None
        except ValueError as error:
            text = f"what answers at `{self.url}{path}` is no vLLM server: it sent no JSON"
            raise RunError(Problem(text, key="vllm.server_url")) from error

    def _patiently(self, path: str, body: Any) -> str:
        """One lost connection is no reason to end a run: all that is asked may be asked twice."""
        for left in reversed(range(TRIES)):
            try:
                return self._sent(path, body)
            except HTTPError:
                raise
            except (OSError, HTTPException):
                if not left:
                    raise
                time.sleep(self.pause)
        raise AssertionError("unreachable")

    def _sent(self, path: str, body: Any) -> str:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self.url + path, data, headers), timeout=self.timeout) as answer:
            text: str = answer.read().decode(errors="replace")
        return text

    def _trouble(self) -> str | None:
        try:
            self._sent("/health", None)
        except HTTPError as error:
            return f"it answers {error.code}"
        except (OSError, HTTPException) as error:
            return _reason(error)
        return None

    def _refused(self, path: str, error: HTTPError) -> Away:
        said = " ".join(error.read().decode(errors="replace").split())[:300]
        fix = None
        if error.code == 404 and not path.startswith("/v1"):
            fix = f"start it with its development interface: {START}"
        text = f"the vLLM server at `{self.url}` answered {error.code} to `{path}`" + (f": {said}" if said else "")
        return Away(Problem(text, key="vllm.server_url", fix=fix))


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
        self.transfer.send(model)
        if self.first:
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
            return Sample([int(token) for token in choice["token_ids"]], ENDED[choice["finish_reason"]], scores)
        except (KeyError, TypeError, ValueError) as error:
            text = f"the vLLM server at `{self.client.url}` sent no token ids with log-probabilities"
            raise RunError(Problem(text, key="vllm.server_url", fix="it must be vLLM 0.22 or newer")) from error

    def close(self) -> None:
        self.transfer.close()


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, URLError) else error
    text = str(getattr(inner, "strerror", None) or inner) or type(inner).__name__
    return text[:1].lower() + text[1:]
