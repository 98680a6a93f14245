"""A server that speaks vLLM's interface and completes with the weights that it was sent, in a process of its own:

    python standin_server.py [--without ADDRESS ...] [--owner NAME] [--mode LOGPROBS_MODE] [--samples]

It prints its port. Only with `--samples` does it take weights; `/to_come` says what will go wrong with them: `loads`, after how
many more it dies, and `other`, that its model is not the one it was sent. Torch is loaded when weights arrive, and completions are drawn by Transformers from the model that they make,
each from its request's seed: what a completion says of its log-probabilities is true."""

from __future__ import annotations

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Model:
    """The weights that were sent last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.net: Any = None
        self.to_come({})

    def to_come(self, body: dict[str, Any]) -> None:
        self.loads, self.other = body.get("loads", 1000), body.get("other", False)

    def load(self, folder: str) -> None:
        from transformers import AutoModelForCausalLM

        if self.loads == 0:
            os._exit(1)
        self.loads -= 1
        self.net = AutoModelForCausalLM.from_pretrained(folder).eval()
        if self.other:
            self.net.lm_head.weight.data.mul_(-2)

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        import torch

        drawn, ids, scores = torch.Generator().manual_seed(body["seed"]), list(body["prompt"]), []
        with self.lock, torch.no_grad():
            while len(scores) < body["max_tokens"] and (not scores or ids[-1] not in body["stop_token_ids"]):
                logits = self.net(torch.tensor([ids])).logits[0, -1].float() / body["temperature"]
                ids.append(int(torch.multinomial(logits.softmax(-1), 1, generator=drawn)))
                scores.append(float(logits.log_softmax(-1)[ids[-1]]))
        reason = "stop" if ids[-1] in body["stop_token_ids"] else "length"
        found = {"token_ids": ids[len(body["prompt"]) :], "finish_reason": reason}
        return {"choices": [{**found, "logprobs": {"token_logprobs": scores}}]}


def handler(options: Any, model: Model) -> type[BaseHTTPRequestHandler]:
    answers: dict[str, Any] = {
        "/health": lambda body: "",
        "/version": lambda body: {"version": "0.32.0"},
        "/v1/models": lambda body: {"data": [{"id": "policy", "owned_by": options.owner, "max_model_len": options.longest}]},
        "/server_info": lambda body: {"vllm_config": {"model_config": {"logprobs_mode": options.mode}}},
        "/collective_rpc": lambda body: {"results": [model.load(body["kwargs"]["weights_path"])]},
        "/reset_prefix_cache": lambda body: "",
        "/to_come": model.to_come,
        "/v1/completions": model.complete,
    }  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null"))

        def answer(self, body: Any) -> None:
            path = self.path.partition("?")[0]
            known = path in answers and path not in options.without
            data = json.dumps(answers[path](body) if known else {"detail": "Not Found"}).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def warm() -> None:
    """What takes seconds is there before the first weights are."""
    import torch
    from transformers.models.qwen3 import modeling_qwen3  # noqa: F401

    torch.set_num_threads(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--owner", default="vllm")
    parser.add_argument("--mode", default="processed_logprobs")
    parser.add_argument("--longest", type=int, default=512)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--samples", action="store_true")
    options = parser.parse_args()
    kind = type("Server", (ThreadingHTTPServer,), {"request_queue_size": 128})
    server = kind(("127.0.0.1", options.port), handler(options, Model()))
    print(server.server_port, flush=True)
    if options.samples:
        threading.Thread(target=warm, daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
