"""Whole runs whose completions come from elsewhere: a server in a process of its own, or an engine in this one, that holds nothing
but the weights it was given and samples from them. Where it dies the run is saved, and resumed with a new one, which never saw
the weights of the checkpoint, it becomes the run that was left alone, to the last bit."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from memcfg_vllm.client import Client

from memcfg import RunError
from memcfg.rollouts import Sample

pytestmark = [pytest.mark.torch, pytest.mark.slow]

STANDIN = Path(__file__).parent / "standin_server.py"


GIVEN = [
    "trainer=grpo", "generation=vllm", "generation.max_new_tokens=3", "run.steps=4", "run.log_steps=1",
    "run.eval_steps=null", "run.batch_size=8", "run.accumulation=2", "generation.steps=1", "data.eval_rows=1",
]  # fmt: skip
"""Four steps, each of two generations."""


class Sampler(NamedTuple):
    """What a run says more to sample with it; `to_come(loads=, other=)` says what will go wrong, and `dies` what is told then."""

    more: list[str]
    to_come: Callable[..., Any]
    dies: str


def standin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("standin_server", STANDIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def server(python: str = sys.executable) -> Iterator[Sampler]:
    """A new server, in a process of its own."""
    command = [python, str(STANDIN), "--samples"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as started:
        try:
            assert started.stdout is not None
            url = f"http://127.0.0.1:{int(started.stdout.readline())}"
            client = Client(url, 60)
            yield Sampler(
                ["vllm.mode=server", "vllm.transfer=files", f"vllm.server_url={url}"],
                lambda **what: client.ask("/to_come", what), "no longer answers",
            )  # fmt: skip
        finally:
            started.kill()


@contextmanager
def colocated(_: str) -> Iterator[Sampler]:
    """A new engine, in this process."""
    from memcfg_vllm import colocated, facts

    sampler = standin().Model()

    class Engine:
        def __init__(self, folder: str, **_: Any) -> None:
            from transformers import AutoConfig, AutoModelForCausalLM

            sampler.net = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).eval()

        def load(self, weights: Any) -> None:
            if sampler.loads == 0:
                raise RuntimeError("gone")
            sampler.loads -= 1
            sampler.net.load_state_dict({name: tensor.clone() for name, tensor in weights})
            if sampler.other:
                sampler.net.lm_head.weight.data.mul_(-2)

        def forget(self) -> bool:
            return True

        def complete(self, prompts: Any, requests: Any) -> list[Sample]:
            answers = [
                sampler.complete({"prompt": p, **r})["choices"][0] for p, r in zip(prompts, requests, strict=True)
            ]
            return [
                Sample(a["token_ids"], a["finish_reason"] == "stop", a["logprobs"]["token_logprobs"]) for a in answers
            ]

        def close(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(colocated, "Engine", Engine)
        patched.setattr(facts, "installed", lambda values: True)
        patched.setattr(facts, "for_cpus", lambda values: True)
        yield Sampler(
            [], lambda **what: sampler.to_come(what), "vLLM failed taking over the weights: RuntimeError: gone"
        )


def trained(folder: Path, more: list[str]) -> Any:
    """The weights that the run ends with."""
    from safetensors.torch import load_file

    import memcfg
    from memcfg.engine.execute import train
    from memcfg.registry import load

    plan = memcfg.resolve([*GIVEN, f"run.dir={folder}", *more])
    train(plan, load().hooks(plan), folder)
    return load_file(folder / "model" / "model.safetensors")


@pytest.mark.parametrize("kind", [server, colocated])
def test_a_run_goes_on_with_a_new_sampler_as_if_nothing_had_happened(
    kind: Any, warm_python: str, tmp_path: Path
) -> None:
    import torch

    with kind(warm_python) as sampler:
        sampler.to_come(other=True)
        with pytest.raises(
            RunError, match="vLLM does not compute the model that is trained: the log-probabilities of its"
        ):
            trained(tmp_path / "other", sampler.more)
        sampler.to_come()
        whole = trained(tmp_path / "whole", sampler.more)
        said = json.loads((tmp_path / "whole" / "effective.json").read_text())["generation.backend"]
        assert said["effective"] == "vllm"
        assert "log-probabilities as the model's, to " in said["evidence"]
        sampler.to_come(loads=2)
        with pytest.raises(RunError, match=sampler.dies):
            trained(tmp_path / "run", sampler.more)
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-2"]
    with kind(warm_python) as sampler:
        resumed = trained(tmp_path / "run", [*sampler.more, "run.resume=auto"])
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.distributed
def test_two_processes_save_together_when_their_server_dies(tmp_path: Path) -> None:
    """And go on with another one to what they would have become."""
    whole = launched(tmp_path / "whole", loads=1000)
    assert whole.returncode == 0, whole.stderr[-3000:]
    died = launched(tmp_path / "run", loads=2)
    assert died.returncode == 1
    assert "no longer answers" in " ".join(died.stderr.split())
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-2"]
    resumed = launched(tmp_path / "run", "run.resume=auto", loads=1000)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "run"))
    assert one == other


def launched(folder: Path, *more: str, loads: int) -> subprocess.CompletedProcess[str]:
    with server() as sampler:
        sampler.to_come(loads=loads)
        command = [
            sys.executable, "-m", "memcfg", *GIVEN, "distributed=ddp", "distributed.processes=2", f"run.dir={folder}",
            *sampler.more, *more,
        ]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
