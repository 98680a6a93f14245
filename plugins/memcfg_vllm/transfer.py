"""How weights get to a server: through files that both can read, or from GPU to GPU over NCCL."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from memcfg import Problem, RunError
from memcfg.engine.forward import causal_model
from memcfg.files import reason
from memcfg_vllm.client import Client
from memcfg_vllm.engine import sender
from memcfg_vllm.teams import agreed
from memcfg_vllm.weights import current, described


class Files:
    """A checkpoint in `folder`, which the server reads. Works on every device, and needs no vllm package here."""

    def __init__(self, client: Client, folder: str | None, *, first: bool = True) -> None:
        self.client, self.first, self.sent = client, first, 0
        self._made = folder is None and first
        self._given = folder
        self._folder: Path | None = None

    def send(self, model: torch.nn.Module) -> None:
        """Every process gathers; the first one writes and asks the server to read. None goes on before that is done."""
        kept = {name: tensor.cpu().contiguous() for name, tensor in current(model) if self.first}
        agreed(lambda: self._write(model, kept), first=self.first)
        self.sent += 1

    def close(self) -> None:
        if self._made and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _write(self, model: torch.nn.Module, kept: dict[str, torch.Tensor]) -> None:
        target = self._place() / f"weights-{self.sent}"
        try:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            save_file(kept, target / "model.safetensors", metadata={"format": "pt"})
            described(causal_model(model)).save_pretrained(target)
        except OSError as error:
            raise RunError(Problem(f"cannot write `{target}`: {reason(error)}", key="vllm.transfer_dir")) from error
        asked = {"method": "reload_weights", "kwargs": {"weights_path": str(target.resolve())}}
        try:
            self.client.ask("/collective_rpc", asked)
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def _place(self) -> Path:
        if self._folder is None:
            self._folder = Path(self._given or tempfile.mkdtemp(prefix="memcfg-weights-"))
        return self._folder


class Weights:
    """The weights of a model as vLLM's sender reads them."""

    def __init__(self) -> None:
        self.model: torch.nn.Module | None = None

    def metadata(self) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        return [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        if self.model is None:
            raise RuntimeError("there are no weights to send")
        return current(self.model)


class Nccl:
    """From GPU to GPU. The server must have been started for it (`--weight-transfer-config`)."""

    def __init__(self, client: Client, port: int, address: str, rank: int = 0) -> None:
        self.client, self.port, self.address, self.rank = client, port, address, rank
        self._weights, self._sender = Weights(), None

    def send(self, model: torch.nn.Module) -> None:
        self._weights.model = model
        sending: Any = self._sender or self._joined()
        self._sender = sending
        sending.send_weights()

    def close(self) -> None:
        if self._sender is not None:
            self._sender.shutdown()
        self._sender = None

    def _joined(self) -> Any:
        world = 1
        if self.rank == 0:
            world = 1 + int(self.client.ask("/get_world_size")["world_size"])
        return sender(self.client.url, self.address, self.port, world, self.rank, self._weights, self.client.timeout)
