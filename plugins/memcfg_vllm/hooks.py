"""Gives vLLM as what samples, and reads back that it did."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import torch

from memcfg import Plan, Problem, RequestError, hookimpl
from memcfg.engine.evidence import Effective
from memcfg.rollouts import end_tokens
from memcfg_vllm import probe
from memcfg_vllm.generation import THERE, VLLMGeneration
from memcfg_vllm.phases import Phases
from memcfg_vllm.probe import Found
from memcfg_vllm.same import Same
from memcfg_vllm.server import Served, Transfer
from memcfg_vllm.teams import Team, everywhere
from memcfg_vllm.weights import check

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GIB = 1 << 30


@hookimpl
def memcfg_generate(plan: Plan, model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase) -> VLLMGeneration:
    """The engine, set up before the first step so that what is wrong with it shows at once."""
    check(model)
    ends = end_tokens(model, tokenizer)
    if plan["vllm.mode"] == "server":
        found = probe.server(plan)
        as_drawn = found.logprobs_mode in (None, probe.PROCESSED)
        told = drawn(plan) if as_drawn else {**drawn(plan), "temperature": 1.0}
        same = Same(told, f"start the server at `{found.client.url}` with this very model, or a copy of its folder")
        backend, phases = served(plan, found), Phases(sleeps=False)
        return VLLMGeneration(backend, phases, drawn(plan), ends, found.longest, same=same, longer=THERE)
    from memcfg_vllm.colocated import made

    engine, phases = everywhere(lambda: made(plan, model, tokenizer)), Phases(sleeps=plan["vllm.sleep"])
    team, longest = Team.of(plan["vllm.tensor_parallel"]), plan["vllm.max_model_length"]
    return VLLMGeneration(engine, phases, drawn(plan), ends, longest, team, Same(drawn(plan)))


@hookimpl
def memcfg_simulation(plan: Plan, stands_in: dict[str, Any]) -> dict[str, Any]:
    """Raises `RequestError`: what vLLM takes of the device is its own affair."""
    text = "vLLM's own memory is not simulated"
    if plan["vllm.mode"] == "colocate":
        share = plan["vllm.gpu_memory_utilization"]
        text = f"vLLM takes its memory (`vllm.gpu_memory_utilization={share}`) past torch's allocator, which is not simulated"
    raise RequestError(Problem(text, key="generation.backend", fix="predict `generation.backend=transformers` instead"))


@hookimpl
def memcfg_evidence(plan: Plan, run: Any, found: list[Effective]) -> list[Effective]:
    """What sampled, how often it was given weights, and how often it slept."""
    made = getattr(run, "generation", None)
    if not isinstance(made, VLLMGeneration):
        return [*found, Effective("generation.backend", type(made).__name__, "what the run samples with")]
    backend = made.backend
    mode = "server" if isinstance(backend, Served) else "colocate"
    text = f"{made.completions} completions, the weights given {made.loads} times"
    text += f"; {made.same.said()}" if made.same is not None else ""
    found = [*found, Effective("generation.backend", "vllm", text)]
    where = f"at `{backend.client.url}`" if isinstance(backend, Served) else "in this process"
    found = [*found, Effective("vllm.mode", mode, where)]
    if plan.get("vllm.sleep") is not None:
        gave = f"asleep {made.naps} times, {getattr(backend, 'freed', 0) / GIB:.2f} GiB given back"
        found.append(Effective("vllm.sleep", made.naps > 0, gave))
    return found


def served(plan: Plan, found: Found) -> Served:
    """The server that was found, and the way that weights get there."""
    from memcfg_vllm.transfer import Files, Nccl

    rank = int(os.environ.get("RANK", "0"))
    transfer: Transfer = (
        Files(found.client, plan["vllm.transfer_dir"], first=rank == 0)
        if plan["vllm.transfer"] == "files"
        else Nccl(found.client, plan["vllm.group_port"], socket.gethostbyname(socket.gethostname()), rank)
    )
    return Served(found.client, transfer, found.name, first=rank == 0)


def drawn(plan: Plan) -> dict[str, Any]:
    """What the plan's `generation.*` options are to vLLM, which takes the likeliest token at a temperature of 0."""
    return {
        "temperature": plan["generation.temperature"], "top_p": plan["generation.top_p"],
        "top_k": plan["generation.top_k"], "min_p": plan.get("generation.min_p") or 0.0,
        "repetition_penalty": plan["generation.repetition_penalty"], "detokenize": plan["vllm.structured_regex"] is not None,
        "regex": plan["vllm.structured_regex"],
    }  # fmt: skip
