"""A teacher that lies in host memory but for its own forward. Its head stays: the student's divergence reads it later."""

from __future__ import annotations

from typing import Any

import torch


class Resting:
    """A context: inside, the weights are on their device; outside, their memory there is free. They are frozen, so nothing is
    copied back. `times` counts the forwards, `bytes` is what each brings to the device.

    On `meta` nothing is copied, and the memory simulator sees the weights come and go."""

    def __init__(self, model: torch.nn.Module, head: torch.nn.Module) -> None:
        kept = {id(parameter) for parameter in head.parameters()}
        self._weights = [p for p in model.parameters() if id(p) not in kept]
        self._devices = [p.device for p in self._weights]
        self._hosts = [_host(p) for p in self._weights]
        self.bytes = sum(p.numel() * p.element_size() for p in self._weights)
        self.times = 0
        self._rest()

    def __enter__(self) -> None:
        self.times += 1
        for weight, host, device in zip(self._weights, self._hosts, self._devices, strict=True):
            weight.data = _there(host, device)

    def __exit__(self, *_: object) -> None:
        self._rest()

    @property
    def asleep(self) -> bool:
        """Whether every weight is in its host memory now."""
        return all(w.data_ptr() == h.data_ptr() for w, h in zip(self._weights, self._hosts, strict=True))

    def _rest(self) -> None:
        for weight, host in zip(self._weights, self._hosts, strict=True):
            weight.data = host


def _host(weight: torch.Tensor) -> torch.Tensor:
    data: Any = weight.data
    if data.is_meta:  # one number in the place of all: what rests takes no device memory
        return torch.empty(1, dtype=data.dtype, device="meta").expand(data.shape)
    if data.device.type == "cpu":
        return data.clone()
    return torch.empty_like(data, device="cpu", pin_memory=True).copy_(data)


def _there(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type == "meta":
        return torch.empty(host.shape, dtype=host.dtype, device=device)
    return host.clone() if device.type == "cpu" else host.to(device, non_blocking=True)
