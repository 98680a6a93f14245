"""What takes the place of things that torch's dispatcher never sees, or that behave differently without storage.

A stand-in is named by where it lives, `package.module:attribute`, and is put there while a step is simulated. Plugins add
theirs with the hook `memcfg_simulation`; those here are torch's own: on `meta` its attention falls back to plain matrix
products, and its optimizers refuse their fused form."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import torch

from memcfg.errors import PluginError
from memcfg.planner.machine import Machine

Tensor = torch.Tensor
aten = torch.ops.aten

SDPA: Final = "torch.nn.functional:scaled_dot_product_attention"
DROPOUT: Final = "torch.nn.functional:dropout"
HALF: Final = (torch.float16, torch.bfloat16)
FLASH_ON_CPU: Final = 1
WIDEST_HEAD: Final = {"flash": 256, "cudnn": 128, "efficient": 1 << 16}
ALLOWED: Final[dict[str, Callable[[], bool]]] = {
    "flash": torch.backends.cuda.flash_sdp_enabled, "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
}  # fmt: skip
"""torch's own switches, which a plan may have set for its steps."""


def of_torch(machine: Machine) -> dict[str, Any]:
    """The stand-ins for torch itself, on this machine."""
    found: dict[str, Any] = {SDPA: attention(machine), "torch:tensor": _tensor(), **_autocast()}
    if machine.kind == "cuda":
        for module in ("torch.optim.optimizer", "torch.utils._foreach_utils"):
            for kind in ("fused", "foreach"):
                found[f"{module}:_get_{kind}_kernels_supported_devices"] = lambda: ["cuda", "meta"]
        found[DROPOUT] = _dropout()
    return found


@contextmanager
def in_place(stand_ins: Mapping[str, Any]) -> Iterator[None]:
    """Every stand-in where it belongs; afterwards everything as it was. Raises `PluginError` for a name without place."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for name, stand_in in stand_ins.items():
            holder, attribute = _place(name)
            before.append((holder, attribute, getattr(holder, attribute)))
            setattr(holder, attribute, stand_in)
        yield
    finally:
        for holder, attribute, thing in reversed(before):
            setattr(holder, attribute, thing)


def _place(name: str) -> tuple[Any, str]:
    module, _, path = name.partition(":")
    *outer, attribute = path.split(".")
    try:
        holder: Any = importlib.import_module(module)
        for part in outer:
            holder = getattr(holder, part)
        getattr(holder, attribute)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"there is no `{name}` that its stand-in could replace: {error}", "simulation") from None
    return holder, attribute


def _tensor() -> Callable[..., Tensor]:
    """`torch.tensor` as on a device: made on the host and copied. On `meta` it would forget what it is given."""
    # Torch lists once which functions a device context applies to. Listed while this stands in for `torch.tensor`, the real
    # one would be left out for good, and models loaded later in this process would begin with unset buffers.
    with torch.device("cpu"):
        torch.empty(0)
    plain = torch.tensor

    def made(data: Any, *, device: Any = None, requires_grad: bool = False, **how: Any) -> Tensor:
        if device is None or torch.device(device).type != "meta":
            return plain(data, device=device, requires_grad=requires_grad, **how)
        return plain(data, **how).to(device).requires_grad_(requires_grad)

    return made


def _dropout() -> Callable[..., Tensor]:
    """Dropout by its one kernel, which keeps a byte for each element. Elsewhere it multiplies with numbers that it keeps."""
    plain = torch.nn.functional.dropout

    def dropped(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if input.is_meta and training and 0 < p < 1 and input.numel() and not inplace:
            return torch.native_dropout(input, p, True)[0]
        return plain(input, p, training, inplace)

    return dropped


def _autocast() -> dict[str, Any]:
    """Autocast knows no `meta`: what is asked of it there is answered as for the CPU, where it is off."""
    asked, dtype, entered = torch.is_autocast_enabled, torch.get_autocast_dtype, torch.autocast

    def known(kind: Any) -> Any:
        return "cpu" if kind == "meta" else kind

    class Autocast(entered):  # type: ignore[misc, valid-type]
        def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
            super().__init__(known(device_type), *args, **kwargs)

    return {
        "torch:is_autocast_enabled": lambda kind="cpu": asked(known(kind)),
        "torch:get_autocast_dtype": lambda kind: dtype(known(kind)),
        "torch:autocast": Autocast,
    }


# ---------------------------------------------------------------------------------------------------- attention


def attention(machine: Machine) -> Callable[..., Tensor]:
    """`scaled_dot_product_attention` by the kernel that torch would pick on this machine."""
    plain = torch.nn.functional.scaled_dot_product_attention

    def attend(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        how = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        kernel = chosen(machine, query, key, value, attn_mask, how)
        if not query.is_meta or kernel == "math":
            return plain(query, key, value, attn_mask=attn_mask, **how)  # type: ignore[arg-type]
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = _additive(attn_mask, query.dtype)
        return KERNELS[kernel](query, key, value, attn_mask, dropout_p, is_causal, scale)

    return attend


def chosen(
    machine: Machine, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, how: Mapping[str, Any]
) -> str:
    """The kernel's name: flash, cudnn, efficient, cpu or math."""
    if machine.kind == "cpu":
        shapes = tuple((tuple(t.shape), t.stride()) for t in (query, key, value))
        masked = None if mask is None else (tuple(mask.shape), mask.stride(), mask.dtype)
        return _on_cpu(shapes, query.dtype, masked, tuple(how.items()))
    width, grouped = query.shape[-1], query.shape[-3] != key.shape[-3]
    half = query.dtype in HALF and query.shape[-1] == value.shape[-1]
    first = machine.attention if mask is None else machine.attention_masked
    order = (first, "flash", "efficient") if mask is None else (first, "efficient")
    for kernel in (kernel for kernel in order if ALLOWED[kernel]()):
        if WIDEST_HEAD[kernel] >= width and (half or kernel == "efficient"):
            return "math" if grouped and kernel == "efficient" else kernel
    return "math"


@cache
def _on_cpu(shapes: Any, dtype: torch.dtype, mask: Any, how: Any) -> str:
    """What torch itself picks on this CPU: asked with tensors whose memory is never touched."""
    query, key, value = (torch.empty_strided(shape, stride, dtype=dtype) for shape, stride in shapes)
    real = None if mask is None else torch.empty_strided(mask[0], mask[1], dtype=mask[2])
    with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined]
        choice = torch._fused_sdp_choice(query, key, value, real, **dict(how))
    return "cpu" if choice == FLASH_ON_CPU else "math"


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask as the kernels take it; made anew in every call."""
    zero, low = (torch.scalar_tensor(x, dtype=dtype, device=mask.device) for x in (0.0, -math.inf))
    return torch.where(mask, zero, low)


def _learning(*inputs: Tensor) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in inputs)


def _flash(query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float, causal: bool, scale: Any) -> Tensor:
    return aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale)[0]


def _cudnn(query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float, causal: bool, scale: Any) -> Tensor:
    learning = _learning(query, key, value)
    return aten._scaled_dot_product_cudnn_attention(
        query, key, value, mask, learning, dropout, causal, False, scale=scale
    )[0]


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float, causal: bool, scale: Any
) -> Tensor:
    if mask is not None:
        mask = _padded(mask).expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    learning = _learning(query, key, value)
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, learning, dropout, causal, scale=scale
    )[0]


def _padded(mask: Tensor) -> Tensor:
    """Rows that begin at multiples of 16 elements, which the kernel asks for."""
    columns = mask.shape[-1]
    wide = -(-columns // 16) * 16
    return mask if wide == columns else torch.nn.functional.pad(mask, (0, wide - columns))[..., :columns]


def _cpu(query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float, causal: bool, scale: Any) -> Tensor:
    return aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout, causal, attn_mask=mask, scale=scale
    )[0]


KERNELS: Final[dict[str, Callable[..., Tensor]]] = {
    "flash": _flash, "cudnn": _cudnn, "efficient": _efficient, "cpu": _cpu,
}  # fmt: skip
