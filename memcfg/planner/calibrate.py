"""What this host's GPU is like, measured in about a minute: what lies outside the allocator, workspaces, rates, and what
attention kernels use beyond their results."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from memcfg.errors import Problem, RunError
from memcfg.planner import launches
from memcfg.planner.clock import HALF_RATE, PRODUCT
from memcfg.planner.machine import Machine

ROUNDS: Final = 9
ROWS: Final = 8192
WIDTHS: Final = ((2048, 6144), (4096, 12_288))
LONG: Final = 4096
HEADS: Final = 16
HEAD: Final = 128
WIDE: Final = 256
BIG: Final = 1 << 28
SMALL: Final = 1 << 10
QUEUED: Final = 200
KERNELS: Final = {1: "flash", 2: "efficient", 3: "cudnn", 0: "math"}
"""What torch's choice of an attention kernel means."""


def calibrated(machine: Machine, tell: Callable[[str], Any] = lambda text: None) -> Machine:
    """`machine` with everything that can be measured here. Raises `RunError` on a host without a GPU."""
    if not torch.cuda.is_available():
        fix = "memcfg has defaults for cards by name: `memcfg predict assume.device=h100`"
        raise RunError(Problem("there is no GPU to measure on this host", key="calibrate", fix=fix))
    torch.cuda.empty_cache()
    tell("workspaces")
    blas, bias = _workspaces()
    tell("matrix products and copies")
    shortest = _shortest()
    half, single = _products(torch.bfloat16, shortest), _products(torch.float32, shortest)
    card = torch.cuda.get_device_properties(0)
    found = replace(
        machine, memory=card.total_memory, processors=card.multi_processor_count,
        threads=card.max_threads_per_multi_processor, blas=blas, blas_bias=bias, matmul=half,
        matmul_float32=single, bandwidth=_bandwidth(), elements=_elements(), shortest=shortest, host_copy=_host_copy(), calibrated=True,
    )  # fmt: skip
    tell("attention")
    found = _attention(found)
    tell("what the host spends on launching")
    found = launches.measured(found)
    tell("what lies outside the allocator")
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return replace(found, outside=total - free - torch.cuda.memory_reserved())


def _workspaces() -> tuple[int, int]:
    """Bytes of cuBLAS's workspace, and of what a product with a bias takes beyond it."""
    factor = torch.randn(768, 768, device="cuda", dtype=torch.bfloat16)
    vector = torch.zeros(768, device="cuda", dtype=torch.bfloat16)
    place = torch.empty_like(factor)
    before = torch.cuda.memory_allocated()
    torch.mm(factor, factor, out=place)
    plain = torch.cuda.memory_allocated() - before
    kept = torch.nn.functional.linear(factor, factor, vector)
    biased = torch.cuda.memory_allocated() - before - plain - kept.numel() * kept.element_size()
    return plain, max(0, biased)


def _seconds(work: Callable[[], Any]) -> float:
    """The median time of some work on the device."""
    work()
    times = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def _shortest() -> float:
    """Seconds of a kernel that has next to nothing to do, among others on a stream that is never empty."""
    source, little = torch.empty(BIG, device="cuda", dtype=torch.bfloat16), torch.zeros(SMALL, device="cuda")
    target = torch.empty_like(source)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(ROUNDS):
        target.copy_(source)  # meanwhile the host launches the others
    begin.record()
    for _ in range(QUEUED):
        little.add_(1.0)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / QUEUED


def _elements() -> float:
    """Elements a second of a kernel that repeats one of its factors."""
    rows = torch.ones(ROWS, WIDTHS[0][0], device="cuda", dtype=torch.bfloat16)
    factor = torch.ones(WIDTHS[0][0], device="cuda", dtype=torch.bfloat16)
    return rows.numel() / _seconds(lambda: rows * factor)


def _products(dtype: torch.dtype, shortest: float) -> float:
    """Operations a second of matrix products as layers have them."""
    rates = []
    for narrow, wide in WIDTHS:
        left = torch.randn(ROWS, narrow, device="cuda", dtype=dtype)
        right = torch.randn(narrow, wide, device="cuda", dtype=dtype)
        taken = _seconds(lambda a=left, b=right: a @ b)  # type: ignore[misc]
        rates.append(2.0 * ROWS * narrow * wide / (taken - PRODUCT - shortest))
    return statistics.mean(rates)


def _bandwidth() -> float:
    source = torch.empty(BIG, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    return 4.0 * BIG / _seconds(lambda: target.copy_(source))


def _host_copy() -> float:
    host = torch.empty(BIG // 2, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(BIG // 2, dtype=torch.uint8, device="cuda")
    out = _seconds(lambda: host.copy_(device, non_blocking=True))
    back = _seconds(lambda: device.copy_(host, non_blocking=True))
    return BIG / (out + back)


def _attention(machine: Machine) -> Machine:
    """Which kernels torch picks, how fast they are, and what their backward uses."""
    query, key, value = (
        torch.randn(1, HEADS, LONG, HEAD, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    mask = torch.ones(1, 1, LONG, LONG, device="cuda", dtype=torch.bool)
    plain = KERNELS.get(torch._fused_sdp_choice(query, key, value, None, 0.0, True), "math")
    masked = KERNELS.get(torch._fused_sdp_choice(query, key, value, mask, 0.0, False), "math")
    flops = 2.0 * HEADS * LONG * LONG * HEAD

    def forward() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    def both() -> Any:
        return torch.autograd.grad(forward(), (query, key, value), ones)

    ones = torch.ones_like(query)
    once, twice = _seconds(forward), _seconds(both)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        slow_once, slow_twice = _seconds(forward), _seconds(both)
        wide_once, wide_twice = _wide(LONG // 2)
    out = forward()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = torch.autograd.grad(out, (query, key, value), ones)
    results = sum(t.numel() * t.element_size() for t in found)
    beyond = max(0, torch.cuda.max_memory_allocated() - before - results) / query.numel()
    more = flops * (1 + HALF_RATE / LONG)
    slow = 2.5 * flops / max(slow_twice - slow_once, 1e-9)
    wide = 2.5 * flops * (WIDE / HEAD) / 4 / max(wide_twice - wide_once, 1e-9)
    return replace(
        machine, attention=plain, attention_masked=masked, attention_forward=more / once,
        attention_backward=2.5 * more / max(twice - once, 1e-9), attention_bytes={plain: beyond},
        efficient_forward=flops / slow_once, efficient_backward=slow, efficient_wide=min(1.0, wide / slow),
    )  # fmt: skip


def _wide(rows: int) -> tuple[float, float]:
    """Seconds of causal attention with wide heads: forward, and forward and backward."""
    shape = (1, HEADS, rows, WIDE)
    given = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    query, key, value = given
    ones = torch.ones_like(query)

    def forward() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    return _seconds(forward), _seconds(lambda: torch.autograd.grad(forward(), given, ones))
