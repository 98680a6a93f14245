"""Gives vLLM as what samples, and reads back that it did."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import torch

from memcfg import Plan, RequestError, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.errors import Problem
from memcfg_vllm.generation import VLLMGeneration
from memcfg_vllm.phases import Phases
from memcfg_vllm.server import Client, Served, Transfer
from memcfg_vllm.weights import check

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GIB = 1 << 30


@hookimpl
def memcfg_generate(plan: Plan, model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase) -> VLLMGeneration:
    """The engine, set up before the first step so that what is wrong with it shows at once."""
    refuse(plan)
    check(model)
    ends = end_tokens(model, tokenizer)
    if plan["vllm.mode"] == "server":
        return VLLMGeneration(served(plan), Phases(sleeps=False), drawn(plan), ends)
    from memcfg_vllm.colocated import made

    backend = made(plan, model, tokenizer)
    return VLLMGeneration(backend, Phases(sleeps=plan["vllm.sleep"]), drawn(plan), ends, plan["vllm.max_model_length"])


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """What sampled, how often it was given weights, and how often it slept."""
    made = getattr(run, "generation", None)
    if not isinstance(made, VLLMGeneration):
        return [*found, Effective("generation.backend", type(made).__name__, "what the run samples with")]
    backend = made.backend
    mode = "server" if isinstance(backend, Served) else "colocate"
    text = f"{made.completions} completions, the weights given {made.loads} times"
    found = [*found, Effective("generation.backend", "vllm", text)]
    where = f"at `{backend.client.url}`" if isinstance(backend, Served) else "in this process"
    found = [*found, Effective("vllm.mode", mode, where)]
    if plan.get("vllm.sleep") is not None:
        gave = f"asleep {made.naps} times, {getattr(backend, 'freed', 0) / GIB:.2f} GiB given back"
        found.append(Effective("vllm.sleep", made.naps > 0, gave))
    return found


def refuse(plan: Plan) -> None:
    """What cannot be run yet."""
    url = plan.get("vllm.server_url")
    if url is not None and not url.startswith(("http://", "https://")):
        text = f"`{url}` is no address of a server"
        raise RequestError(Problem(text, key="vllm.server_url", fix=f"vllm.server_url=http://{url}"))
    if (plan.get("vllm.tensor_parallel") or 1) > 1:
        text = "one vLLM engine over several GPUs of the run is not written yet"
        raise RequestError(Problem(text, key="vllm.tensor_parallel", fix="vllm.tensor_parallel=1"))


def served(plan: Plan) -> Served:
    """The server, once it is up, and the way that weights get there."""
    from memcfg_vllm.transfer import Files, Nccl

    url = plan["vllm.server_url"] or f"http://{plan['vllm.server_host']}:{plan['vllm.server_port']}"
    client = Client(url, plan["vllm.server_timeout"])
    name, rank = client.wait(), int(os.environ.get("RANK", "0"))
    transfer: Transfer = (
        Files(client, plan["vllm.transfer_dir"], first=rank == 0)
        if plan["vllm.transfer"] == "files"
        else Nccl(client, plan["vllm.group_port"], socket.gethostbyname(socket.gethostname()), rank)
    )
    return Served(client, transfer, name, first=rank == 0)


def drawn(plan: Plan) -> dict[str, Any]:
    """What the plan's `generation.*` options are to vLLM, which takes the likeliest token at a temperature of 0."""
    return {
        "temperature": plan["generation.temperature"], "top_p": plan["generation.top_p"],
        "top_k": plan["generation.top_k"], "min_p": plan.get("generation.min_p") or 0.0,
        "repetition_penalty": plan["generation.repetition_penalty"], "detokenize": plan["vllm.structured_regex"] is not None,
        "regex": plan["vllm.structured_regex"],
    }  # fmt: skip


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a completion: the tokenizer's, and those that the weights were saved with."""
    saved = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = [tokenizer.eos_token_id, *(saved if isinstance(saved, list) else [saved])]
    return sorted({token for token in found if token is not None})
