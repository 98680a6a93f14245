"""Two processes around one engine, and around one server: who sees which prompts, and that nobody goes on too early. The engine and
the server are stand-ins that write down what they are asked; the processes are real."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

SCRIPT = """
import json, os, sys, time
import torch, torch.distributed as dist
from memcfg import Away, RunError
from memcfg.rollouts import Sample
from memcfg_vllm.colocated import Colocated
from memcfg_vllm.generation import VLLMGeneration
from memcfg_vllm.phases import Phases
from memcfg_vllm.server import Served
from memcfg_vllm.teams import Team

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), sys.argv[1]
said = {}
drawn = {"temperature": 0.9, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "regex": None}

class Engine:  # completes a prompt with its first token and the seed of its request
    def __init__(self):
        self.seen, self.loads = [], 0
    def load(self, weights):
        self.loads += len(dict(weights))
    def forget(self):
        return True
    def complete(self, prompts, requests):
        self.seen.append([list(prompts), [r["seed"] for r in requests]])
        return [Sample([p[0], r["seed"]], True, [-1.0, -1.0]) for p, r in zip(prompts, requests)]

class Model(torch.nn.Linear):
    config = type("Config", (), {"get_text_config": lambda self: self, "vocab_size": 100})()
    def get_output_embeddings(self): return None
    def get_input_embeddings(self): return None

import memcfg_vllm.colocated as colocated
colocated.current = lambda model: iter(model.named_parameters())
model = Model(2, 2)

def generation(team):
    engine = Engine()
    made = VLLMGeneration(Colocated(engine), Phases(sleeps=False), drawn, [2], longest=6, team=team)
    made.sync(model)
    return made, engine

OWN = {0: [[1, 2], [1, 2], [3]], 1: [[4]]}
for name, team in (("together", Team.of(2)), ("apart", Team.of(1))):
    made, engine = generation(team)
    samples = made.generate(OWN[rank], seed=10 * rank, limit=2)
    said[name] = {"seen": list(engine.seen), "own": [s.ids for s in samples], "counted": made.completions, "loads": engine.loads}
    if name == "together":
        samples = made.generate(OWN[0] if rank == 0 else [], seed=0, limit=2)  # one has nothing to ask
        said["nothing"] = [s.ids for s in samples]
        try:
            made.generate([[1]] if rank == 0 else [[1] * 9], seed=0, limit=2)
        except RunError as error:
            said["too long"] = str(error)

# ------------------------------------------------------------------------------------------- an engine that fails

gathered = []

def weights(model):
    for name, tensor in model.named_parameters():
        dist.all_reduce(torch.zeros(1))  # as gathering shards is: all of them, or nobody goes on
        gathered.append(name)
        yield name, tensor

colocated.current = weights

class Failing(Engine):  # in the second process alone
    where = None
    def fails(self, where):
        if rank == 1 and self.where == where:
            raise torch.OutOfMemoryError("no room") if where == "memory" else ValueError("the engine is broken")
    def load(self, given):
        next(given)
        self.fails("load")
        super().load(given)
    def complete(self, prompts, requests):
        self.fails("complete")
        self.fails("memory")
        return super().complete(prompts, requests)
    def wake(self, part):
        self.fails(part)
    def sleep(self):
        self.fails("sleep")

def fails(where):
    engine = Failing()
    made = VLLMGeneration(Colocated(engine), Phases(sleeps=True), drawn, [2], longest=6)
    engine.where = where
    try:
        try:
            made.wake("weights")
            made.sync(model)
            made.wake("cache")
            made.generate([[1] * 9] if where == "long" and rank == 1 else [[1, 2]], seed=0, limit=2)
        finally:
            made.sleep()
    except Exception as error:
        return [type(error).__name__, str(error), getattr(error, "everywhere", None)]

said["failed"] = {where: fails(where) for where in ("weights", "load", "cache", "complete", "memory", "long", "sleep")}
said["gathered"] = len(gathered)

# ------------------------------------------------------------------------------------------------ a server

def note(what):
    with open(f"{folder}/log", "a") as log:
        log.write(f"{what} {rank}\\n")

class Client:
    url, broken, gone = "http://there", False, False
    def ask(self, path, body=None):
        if self.gone:
            raise Away("the server is gone")
        if path == "/reset_prefix_cache":
            time.sleep(0.5)
            note("forgotten")
            return {"success": not self.broken}
        time.sleep(0.7 * rank)  # the second one's prompts take longer
        note("completed")
        return {"choices": [{"token_ids": [5], "finish_reason": "stop", "logprobs": {"token_logprobs": [-1.0]}}]}

class Transfer:
    def send(self, model):
        if rank == 0:
            note("sent")
    def close(self): pass

client = Client()
served = VLLMGeneration(Served(client, Transfer(), "policy", first=rank == 0), Phases(sleeps=False), drawn, [2])
for _ in range(2):
    served.sync(model)
    note("goes on")
    served.generate([[1]], seed=0, limit=1)
    served.sleep()
served.sync(model)
client.gone = rank == 1
try:
    served.generate([[1]], seed=0, limit=1)
except Away as error:
    said["gone"] = [str(error), error.everywhere]
client.broken = True
try:
    served.sync(model)
except RunError as error:
    said["trouble"] = str(error).splitlines()[0]
json.dump(said, open(f"{folder}/{rank}.json", "w"))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], list[str]]:
    """What each of two processes saw, and what happened at the server, in order."""
    folder = tmp_path_factory.mktemp("teams")
    (folder / "script.py").write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(port)]
    done = subprocess.run(
        [*launch, str(folder / "script.py"), str(folder)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)], read(folder / "log")


def read(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_one_engine_sees_everybodys_prompts_and_each_keeps_its_own(said: Any) -> None:
    (first, second), _ = said
    everybody = [[[[1, 2], [1, 2], [3], [4]], [0, 1, 2, 10]]]
    assert first["together"] == {"seen": everybody, "own": [[1, 0], [1, 1], [3, 2]], "counted": 3, "loads": 2}
    assert second["together"] == {"seen": everybody, "own": [[4, 10]], "counted": 1, "loads": 2}
    assert (first["nothing"], second["nothing"]) == ([[1, 0], [1, 1], [3, 2]], [])


def test_engines_apart_see_their_own(said: Any) -> None:
    (first, second), _ = said
    assert first["apart"]["seen"] == [[[[1, 2], [1, 2], [3]], [0, 1, 2]]]
    assert second["apart"]["seen"] == [[[[4]], [10]]]
    assert second["apart"]["own"] == [[4, 10]]


def test_what_is_wrong_with_ones_prompts_is_told_by_all(said: Any) -> None:
    text = (
        "`vllm.max_model_length`: a prompt and its completion may have 11 tokens, and vLLM was set up for 6\n"
        "  vllm.max_model_length=11"
    )
    assert [each["too long"] for each in said[0]] == [text, text]


def test_nobody_sends_while_another_completes_or_goes_on_before_the_cache_is_dropped(said: Any) -> None:
    _, log = said
    rounds = [log[0:6], log[6:12]]
    for events in rounds:
        assert events[:2] == ["sent 0", "forgotten 0"]
        assert sorted(events[2:]) == ["completed 0", "completed 1", "goes on 0", "goes on 1"]
    assert rounds[0][-1] == "completed 1", "the slower one was waited for"


def test_what_the_first_is_told_by_the_server_ends_all(said: Any) -> None:
    text = "`vllm.server_url`: the vLLM server at `http://there` still holds what older weights computed: it is in use"
    assert [each["trouble"] for each in said[0]] == [text, text]


def test_a_server_that_is_gone_for_one_is_gone_for_all_so_that_they_save_together(said: Any) -> None:
    assert [each["gone"] for each in said[0]] == [["the server is gone", True]] * 2


def test_an_engine_that_fails_in_one_process_ends_all_with_one_message(said: Any) -> None:
    """And whoever gathers weights for it does so to the end, as the others wait for that."""
    doing = {
        "weights": "waking its weights", "load": "taking over the weights", "cache": "waking its cache",
        "complete": "generating", "sleep": "going to sleep",
    }  # fmt: skip
    first, second = (each["failed"] for each in said[0])
    for where, what in doing.items():
        text = f"`generation.backend`: vLLM failed {what}: ValueError: the engine is broken"
        assert first[where] == second[where] == ["Away", text, True]
    assert first["memory"] == ["RunError", "process 1 ended with OutOfMemoryError: no room", None]
    assert second["memory"] == ["OutOfMemoryError", "no room", None]
    assert first["long"] == second["long"]
    assert "may have 11 tokens" in first["long"][1]
    assert said[0][0]["gathered"] == said[0][1]["gathered"] == 2 * 6, "all but the run that never woke"
