"""What kernels allocate below torch's dispatcher, against what the allocator's history said on one H200 (torch 2.11)."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from memcfg.planner import reductions, standins  # noqa: E402
from memcfg.planner.hidden import temporaries  # noqa: E402
from memcfg.planner.machine import CPU, Machine, named  # noqa: E402

pytestmark = pytest.mark.torch
aten = torch.ops.aten
H200 = named("h200")


def meta(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("shape", "dims", "expected"),
    [
        ((4, 2048, 2048), [0, 1], [134_217_728, 64]),  # the gradient of a norm's weight: four times the input
        ((1, 2048, 2048), [0, 1], [33_554_432, 64]),
        ((1, 2048, 16, 128), [0, 1, 2], [33_554_432, 4]),  # of a norm on each head
        ((1, 2048, 8, 128), [0, 1, 2], [16_777_216, 4]),
        ((4, 2048, 2048), [2], []),  # one block sums a row
        ((1, 128, 2048), [0, 1], []),  # too few rows to be split
    ],
)
def test_the_buffer_of_a_sum(shape: tuple[int, ...], dims: list[int], expected: list[int]) -> None:
    assert reductions.buffers(meta(*shape), dims, H200.processors, H200.threads) == expected


def test_a_smaller_card_splits_a_sum_into_fewer_parts() -> None:
    whole = reductions.buffers(meta(4, 2048, 2048), [0, 1], 132, 2048)[0]
    assert 0 < reductions.buffers(meta(4, 2048, 2048), [0, 1], 40, 1024)[0] < whole


def backward(kernel: Any, query: Any, key: Any, machine: Machine = H200) -> list[int]:
    return temporaries(kernel, (meta(1), query, key), None, machine)


def test_flash_attention_keeps_row_sums_a_float32_gradient_and_whole_heads() -> None:
    found = backward(
        aten._scaled_dot_product_flash_attention_backward.default, meta(4, 32, 2048, 64), meta(4, 8, 2048, 64)
    )
    assert found == [1_048_576, 67_108_864, 33_554_432, 33_554_432]


@pytest.mark.parametrize(("shape", "expected"), [((3, 16, 1792, 128), 44_050_944), ((2, 4, 4096, 256), 59_785_216)])
def test_memory_efficient_attention_keeps_locks_and_parts_of_wide_heads(shape: tuple[int, ...], expected: int) -> None:
    kernel = aten._scaled_dot_product_efficient_attention_backward.default
    assert backward(kernel, meta(*shape), meta(*shape)) == [expected]


def test_the_embeddings_gradient_sums_in_parts() -> None:
    indices = meta(4, 2048, dtype=torch.long)
    found = temporaries(
        aten.embedding_dense_backward.default, (meta(4, 2048, 2048), indices, 128_256, -1, False), None, H200
    )
    assert found[-1] == 73_818_112


def test_norms_of_many_tensors_have_room_for_the_largest() -> None:
    tensors = [meta(128_256, 2048), *(meta(2048) for _ in range(145))]
    assert temporaries(aten._foreach_norm.Scalar, (tensors,), None, H200) == [2_340_672]


def test_booleans_are_counted_in_the_results_type() -> None:
    mask = meta(4, 2048, dtype=torch.bool)
    assert temporaries(aten.sum.default, (mask,), meta(1, dtype=torch.long), H200) == [65_536]


def test_a_cpu_has_no_such_kernels() -> None:
    assert temporaries(aten.sum.default, (meta(4, 2048),), meta(1), CPU) == []


def test_a_plan_that_switches_cudnn_off_is_simulated_without_it() -> None:
    query = meta(1, 4, 64, 64)
    how = {"enable_gqa": False}
    assert standins.chosen(H200, query, query, query, None, how) == "cudnn"
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        assert standins.chosen(H200, query, query, query, None, how) == "flash"
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def test_softmax_and_its_gradient_keep_a_second_matrix() -> None:
    scores = meta(2, 16, 64, 64, dtype=torch.float32)
    assert temporaries(aten._softmax_backward_data.default, (scores, scores), scores, H200) == [524_288]
    assert temporaries(aten._safe_softmax.default, (scores, -1), scores, H200) == [524_288, 131_072]
