"""vLLM's HTTP interface, and what is said of whatever answers there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from memcfg import Away, Problem, RunError

TRIES = 3
"""How often a connection is tried before the server counts as away."""
START = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs"
STARTING = (502, 503, 504)
"""What a proxy answers while there is nobody behind it yet."""


class Client:
    """One server. `timeout`: how long to wait for it to come up, and for one answer, in seconds."""

    def __init__(self, url: str, timeout: float, pause: float = 1.0) -> None:
        self.url, self.timeout, self.pause = url.rstrip("/"), timeout, pause

    def wait(self, tell: Callable[[str], None] = lambda text: None) -> str:
        """Wait until a vLLM server answers; the name of the model that it serves. `tell` is told that it waits.

        Raises `RunError` after `timeout`, and at once where something else answers."""
        until = time.monotonic() + self.timeout
        told = False
        while (trouble := self._trouble(until)) is not None:
            if time.monotonic() >= until:
                text = f"no vLLM server answers at `{self.url}` (waited {self.timeout:g} s): {trouble}"
                fix = f"start one: {START}; or say where it is: vllm.server_url=URL; or wait longer: vllm.server_timeout=SECONDS"
                raise RunError(Problem(text, key="vllm.server_url", fix=fix))
            if not told:
                tell(f"waiting up to {self.timeout:g} s for a vLLM server at `{self.url}`: {trouble}")
                told = True
            time.sleep(self.pause)
        return str(self.served()["id"])

    def served(self) -> dict[str, Any]:
        """What the server says of the model that it serves. Raises `RunError` where it is no vLLM server."""
        answer = self.ask("/v1/models")
        try:
            (model, *_) = answer["data"]
            owner, _ = model.get("owned_by"), model["id"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self.other(f"`/v1/models` names no model: {shortened(json.dumps(answer))}") from error
        if owner not in (None, "vllm"):
            raise self.other(f"its model is `owned_by` `{owner}`")
        found: dict[str, Any] = model
        return found

    def other(self, seen: str) -> Away:
        """Something else than vLLM answers."""
        text = f"what answers at `{self.url}` is no vLLM server: {seen}"
        fix = f"say where it is: vllm.server_url=URL; or start one: {START}"
        return Away(Problem(text, key="vllm.server_url", fix=fix))

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
            raise self.other(f"`{path}` sent no JSON but {shortened(text)}") from error

    def _patiently(self, path: str, body: Any) -> str:
        """One lost connection is no reason to end a run: all that is asked may be asked twice. One answer that did not come in
        time is: the others would not either."""
        for left in reversed(range(TRIES)):
            try:
                return self._sent(path, body)
            except HTTPError:
                raise
            except (OSError, HTTPException) as error:
                if not left or isinstance(getattr(error, "reason", error), TimeoutError):
                    raise
                time.sleep(self.pause)
        raise AssertionError("unreachable")

    def _sent(self, path: str, body: Any, timeout: float | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        within = self.timeout if timeout is None else timeout
        with urlopen(Request(self.url + path, data, headers), timeout=within) as answer:
            text: str = answer.read().decode(errors="replace")
        return text

    def _trouble(self, until: float) -> str | None:
        """Why the server is not up yet; None once it is."""
        try:
            self._sent("/health", None, timeout=max(until - time.monotonic(), self.pause))
        except HTTPError as error:
            if error.code not in STARTING:
                by = error.headers.get("Server")
                raise self.other(f"`/health` answered {error.code}" + (f" (`{by}`)" if by else "")) from error
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


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, URLError) else error
    text = str(getattr(inner, "strerror", None) or inner) or type(inner).__name__
    return text[:1].lower() + text[1:]


def shortened(text: str) -> str:
    """The beginning of what was sent, on one line."""
    line = " ".join(text.split())
    return f"`{line[:80]}...`" if len(line) > 80 else f"`{line}`"
