"""What the planner has to know of a card: what lives outside the allocator, workspaces, rates, and which of torch's
attention kernels runs there.

Defaults are by name, from vendors' data sheets scaled to what well-shaped kernels reach; `memcfg calibrate` replaces them by
what one's own card measures. `CPU` is the host itself, where there is no caching allocator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from memcfg.core.cards import CARDS, MIB

TERA: Final = 1e12


@dataclass(frozen=True)
class Machine:
    """Bytes, operations a second, bytes a second, seconds. `attention_bytes` holds, for each attention kernel, the bytes
    that its backward uses beyond its results, for each element of the query."""

    name: str
    kind: str = "cuda"
    capability: int = 0
    memory: int | None = None
    outside: int = 800 * MIB
    """What the driver, the context and the loaded kernels hold; no allocator sees it."""
    blas: int = 32 * MIB
    """cuBLAS's workspace, one for each thread that multiplies: the caller's, and autograd's."""
    blas_bias: int = MIB
    """cuBLASLt's, which products with a bias use."""
    attention: str = "flash"
    attention_masked: str = "efficient"
    matmul: float = 200 * TERA
    matmul_float32: float = 20 * TERA
    attention_forward: float = 120 * TERA
    attention_backward: float = 90 * TERA
    efficient_forward: float = 40 * TERA
    efficient_backward: float = 22 * TERA
    """Of the memory-efficient kernel, which takes masks and computes every position."""
    efficient_wide: float = 0.3
    """The rate of its backward at heads wider than 128, as a share of that at narrow ones; its forward loses half as much."""
    bandwidth: float = 1.2 * TERA
    elements: float = 280e9
    """Elements a second of kernels that compute an address for each, or change its type: broadcasts, strides, sums, casts."""
    host_copy: float = 22e9
    host_memory: float = 100e9
    """What the host's processors read and write a second, where they compute (an optimizer that lives there)."""
    launch: float = 22e-6
    """What the host spends on an operation of an eager Transformers model: Python, dispatch and launch. This and the next five
    come from steps on one H200's host that it bounds; from process to process they differed by a fifth."""
    view: float = 11e-6
    hook: float = 10e-6
    """What hooks on saved tensors (non-reentrant checkpoints, offload) add to one."""
    native: float = 12e-6
    """On one that autograd's engine or an optimizer launches."""
    native_view: float = 5.3e-6
    mode: float = 30e-6
    """What a dispatch mode in Python (selective checkpointing) adds to an operation."""
    shortest: float = 2e-6
    """What a kernel takes beyond its work, for beginning and ending."""
    processors: int = 100
    threads: int = 2048
    """Multiprocessors, and threads that each holds at once: into how many parts torch cuts up a sum."""
    attention_bytes: Mapping[str, float] = field(default_factory=dict)
    calibrated: bool = False

    @property
    def rounds(self) -> bool:
        """Whether memory comes from the caching allocator."""
        return self.kind == "cuda"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


CPU: Final = Machine(
    "cpu", kind="cpu", outside=0, blas=0, blas_bias=0, attention="cpu", attention_masked="cpu",
    matmul=0.4 * TERA, matmul_float32=0.4 * TERA, attention_forward=0.2 * TERA, attention_backward=0.2 * TERA,
    bandwidth=20e9, host_copy=20e9, elements=10e9, launch=8e-6, view=2e-6, hook=3e-6, native=8e-6, native_view=2e-6, mode=10e-6, shortest=2e-6,
)  # fmt: skip

SHEETS: Final[dict[str, tuple[float, float, float, float, int]]] = {
    "a10": (125, 31.2, 0.60, 22, 72), "a100": (312, 19.5, 2.04, 24, 108), "a100-40g": (312, 19.5, 1.56, 24, 108),
    "a6000": (155, 38.7, 0.77, 24, 84), "b200": (2250, 75, 8.0, 55, 148), "h100": (989, 67, 3.35, 55, 132),
    "h200": (989, 67, 4.8, 55, 132), "l4": (121, 30.3, 0.30, 22, 58), "l40s": (362, 91.6, 0.86, 24, 142),
    "rtx3090": (71, 35.6, 0.94, 24, 82), "rtx4090": (165, 82.6, 1.01, 24, 128), "rtx5090": (210, 105, 1.79, 50, 170),
    "t4": (65, 8.1, 0.32, 11, 40), "v100": (125, 15.7, 0.90, 11, 80),
}  # fmt: skip
"""Dense half-precision and float32 teraflops, terabytes a second, gigabytes a second to the host, and multiprocessors, by data
sheet."""

THREADS: Final = {75: 1024, 86: 1536, 89: 1536, 120: 1536}
"""Threads that a multiprocessor holds at once, by capability, where they are not 2,048."""


ELEMENTS: Final = 2.8e9
"""Elements a second and multiprocessor of kernels that compute an address for each."""


def named(card: str) -> Machine:
    """The defaults of a card by its name (see `memcfg.core.cards`). Raises `KeyError`."""
    known = CARDS[card]
    half, single, memory, host, processors = SHEETS[card]
    hopper = known.capability >= 90
    attention = ("cudnn", "cudnn") if known.capability == 90 else ("flash", "efficient")
    if known.capability < 80:
        attention = ("efficient", "efficient")
    workspace = 32 * MIB if hopper else 8 * MIB + MIB // 8
    return Machine(
        card, capability=known.capability, memory=known.memory, outside=(800 if hopper else 500) * MIB,
        blas=workspace, attention=attention[0], attention_masked=attention[1],
        matmul=0.88 * half * TERA, matmul_float32=0.65 * single * TERA, attention_forward=0.37 * half * TERA,
        attention_backward=0.35 * half * TERA,
        efficient_forward=0.2 * half * TERA, efficient_backward=0.11 * half * TERA, bandwidth=0.875 * memory * TERA, elements=ELEMENTS * processors, host_copy=host * 1e9,
        processors=processors, threads=THREADS.get(known.capability, 2048),
    )  # fmt: skip


def unnamed(capability: int, memory: int | None = None) -> Machine:
    """A card of which only the capability is known: as the named one that is most like it."""
    like = min(CARDS, key=lambda card: (abs(CARDS[card].capability - capability), card))
    return replace(named(like), name=f"cuda {capability / 10:g}", capability=capability, memory=memory)


def stored(path: Path) -> Machine | None:
    """What `memcfg calibrate` wrote; None where there is nothing that can be read, or not everything: earlier versions measured
    other values, and meant something else by the rest."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        known = {f.name for f in fields(Machine)}
        return Machine(**{key: values[key] for key in known})
    except (OSError, ValueError, TypeError, KeyError):
        return None
