"""The client against a small server that speaks vLLM's interface: what is asked of it, and what is said when it is away, dies
or is something else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from memcfg import Away, RequestError, RunError

pytestmark = pytest.mark.torch

DRAWN = {
    "temperature": 0.9,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "detokenize": False,
    "regex": None,
}


class Fake:
    """A vLLM server: completes with a token that follows from the weights it last read and from the request's seed."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.bias = self.slow = 0.0
        self.answers: dict[str, tuple[int, str]] = {}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.answered(None)

            def do_POST(self) -> None:
                self.answered(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null"))

            def answered(self, body: Any) -> None:
                fake.asked.append((self.path, body))
                answer = json.dumps(fake.answer(self.path, body))
                code, text = fake.answers.get(self.path) or (200, answer)
                data = text.encode()
                time.sleep(fake.slow)
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.sent(code, data)

            def sent(self, code: int, data: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        kind = type("Server", (ThreadingHTTPServer,), {"request_queue_size": 128})
        self.server = kind(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path: str, body: Any) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": "policy"}]}
        if path == "/collective_rpc":
            from safetensors.torch import load_file

            folder = Path(body["kwargs"]["weights_path"])
            assert (folder / "config.json").is_file()
            weights = load_file(folder / "model.safetensors")
            self.bias = float(weights["model.norm.weight"][0])
            return {"results": [None]}
        if path == "/reset_prefix_cache":
            return {"success": True}
        if path == "/v1/completions":
            ids = [round(self.bias) + 10, body["seed"] % 5, 2]
            scores = {"token_logprobs": [-0.5, -0.25, -0.125]}
            return {"choices": [{"token_ids": ids, "finish_reason": "stop", "logprobs": scores}]}
        return {}

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def fake() -> Iterator[Fake]:
    made = Fake()
    yield made
    made.stop()


def served(fake: Fake, tmp_path: Path) -> Any:
    from memcfg_vllm.client import Client
    from memcfg_vllm.generation import VLLMGeneration
    from memcfg_vllm.phases import Phases
    from memcfg_vllm.server import Served
    from memcfg_vllm.transfer import Files

    client = Client(fake.url, 5.0, pause=0.01)
    backend = Served(client, Files(client, str(tmp_path)), client.wait())
    return VLLMGeneration(backend, Phases(sleeps=False), DRAWN, [2])


def a_round(generation: Any, model: Any) -> list[Any]:
    generation.wake("weights")
    generation.sync(model)
    generation.wake("cache")
    found: list[Any] = generation.generate([[1, 2], [1, 2], [3]], seed=7, limit=4)
    generation.sleep()
    return found


def test_a_server_completes_with_the_weights_of_the_step(bench: Any, fake: Fake, tmp_path: Path) -> None:
    import torch

    generation, model = served(fake, tmp_path), bench.model(0).float()
    for step in range(3):
        with torch.no_grad():
            model.model.norm.weight.fill_(step)
        found = a_round(generation, model)
        assert [sample.ids for sample in found] == [[10 + step, 2, 2], [10 + step, 3, 2], [10 + step, 4, 2]]
        assert found[0].finished
        assert found[0].logprobs == [-0.5, -0.25, -0.125]
    generation.close()
    assert list(tmp_path.iterdir()) == [], "no weights are left behind"
    paths = [path for path, _ in fake.asked]
    assert paths[:2] == ["/health", "/v1/models"]
    assert paths[2:7] == ["/collective_rpc", "/reset_prefix_cache", *["/v1/completions"] * 3]
    body = next(body for path, body in fake.asked if path == "/v1/completions")
    assert body == {
        "model": "policy", "prompt": body["prompt"], "return_token_ids": True, "temperature": 0.9, "top_p": 1.0, "top_k": 0,
        "min_p": 0.0, "repetition_penalty": 1.0, "n": 1, "seed": body["seed"], "max_tokens": 4, "logprobs": 0,
        "stop_token_ids": [2],
    }  # fmt: skip


def test_a_server_that_dies_is_one_clear_error(bench: Any, fake: Fake, tmp_path: Path) -> None:
    generation, model = served(fake, tmp_path), bench.model(0).float()
    a_round(generation, model)
    fake.stop()
    with pytest.raises(RunError) as caught:
        a_round(generation, model)
    assert str(caught.value) == (
        f"`vllm.server_url`: the vLLM server at `{fake.url}` no longer answers: connection refused\n"
        "  start it again, then the run"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_away_is_waited_for_and_then_named() -> None:
    from memcfg_vllm.client import Client

    with pytest.raises(RunError) as caught:
        Client("http://127.0.0.1:9", 0.05, pause=0.01).wait()
    assert str(caught.value) == (
        "`vllm.server_url`: no vLLM server answers at `http://127.0.0.1:9` (waited 0.05 s): connection refused\n"
        "  start one: VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs; or say where it is: "
        "vllm.server_url=URL; or wait longer: vllm.server_timeout=SECONDS"
    )


def completion(ids: list[Any], scores: list[float]) -> str:
    found = {"token_ids": ids, "finish_reason": "stop", "logprobs": {"token_logprobs": scores}}
    return json.dumps({"choices": [found]})


def test_an_answer_that_does_not_come_in_time_is_not_asked_for_again(fake: Fake) -> None:
    """It would not come the second time either, and the limit is one for any answer."""
    from memcfg_vllm.client import Client

    fake.slow = 0.5
    with pytest.raises(Away, match="no longer answers: timed out"):
        Client(fake.url, 0.1, pause=0.01).ask("/version")
    assert [path for path, _ in fake.asked] == ["/version"]


@pytest.mark.parametrize(
    ("path", "code", "text", "message"),
    [
        ("/v1/models", 200, "<html>", "is no vLLM server: `/v1/models` sent no JSON but `<html>`"),
        ("/collective_rpc", 404, "Not Found", "answered 404 to `/collective_rpc`: Not Found"),
        ("/collective_rpc", 500, "no such file", "answered 500 to `/collective_rpc`: no such file"),
        ("/reset_prefix_cache", 200, '{"success": false}', "still holds what older weights computed: it is in use"),
        ("/v1/completions", 400, "too long", "answered 400 to `/v1/completions`: too long"),
        ("/v1/completions", 200, '{"choices": [{"text": "a", "finish_reason": "stop"}]}', "sent no token ids with log-prob"),
        (
            "/v1/completions", 200, '{"choices": [{"token_ids": [1], "finish_reason": "abort", "logprobs": null}]}',
            "vLLM completed 0 of 3 prompts",
        ),
        ("/v1/completions", 200, "<html>", "is no vLLM server: `/v1/completions` sent no JSON but `<html>`"),
        ("/v1/completions", 200, completion([1.5], [-0.5]), "sent no token ids with log-prob"),
        ("/v1/completions", 200, completion([100000], [-0.5]), "vLLM sampled token 100000, and the trained model knows "),
        ("/v1/completions", 200, completion([-1], [-0.5]), "vLLM sampled token -1, and the trained model knows "),
        ("/v1/completions", 200, completion([1] * 5, [-0.5] * 5), "a completion of 5 tokens where at most 4 were asked for"),
        ("/v1/completions", 200, completion([1, 2], [-0.5, float("nan")]), "gave nan for the log-probability of a token"),
        ("/v1/completions", 200, completion([1, 2], [float("-inf"), -0.5]), "gave -inf for the log-probability of a token"),
        ("/v1/completions", 200, completion([1, 2], [-0.5, 0.5]), "gave 0.5 for the log-probability of a token"),
    ],
)  # fmt: skip
def test_a_server_that_does_something_else(
    bench: Any, fake: Fake, tmp_path: Path, path: str, code: int, text: str, message: str
) -> None:
    """The run is sound whatever its server says: it is saved before it ends."""
    fake.answers[path] = (code, text)
    with pytest.raises(RunError) as caught:
        a_round(served(fake, tmp_path), bench.model(0).float())
    assert message in str(caught.value)
    assert isinstance(caught.value, Away) or path == "/reset_prefix_cache"
    if code == 404:
        assert str(caught.value).endswith(
            "start it with its development interface: VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode "
            "processed_logprobs"
        )


def test_an_address_needs_its_scheme() -> None:
    from memcfg_vllm.probe import client

    from memcfg import Decision, Plan

    def address(url: str) -> Plan:
        return Plan({"vllm.server_url": Decision(url, "you"), "vllm.server_timeout": Decision(1.0, "default")})

    for url in ("gpu-2:8000", "file:///etc/passwd"):
        with pytest.raises(RequestError, match="is no address of a server"):
            client(address(url))
    assert client(address("http://gpu-2:8000/")).url == "http://gpu-2:8000"


def test_all_processes_learn_of_the_first_ones_trouble() -> None:
    from memcfg_vllm.teams import agreed

    def broken() -> None:
        raise RunError("the disk is full")

    agreed(broken, first=False)  # alone, and not the first: nothing to do
    with pytest.raises(RunError, match="the disk is full"):
        agreed(broken, first=True)
