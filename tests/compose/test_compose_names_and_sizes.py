"""Sizes with units, and names that were nearly right."""

import pytest

from memcfg.compose.sizes import size
from memcfg.compose.spelling import nearest


@pytest.mark.parametrize(
    ("said", "size_in_bytes"),
    [
        ("24gib", 24 * 2**30),
        ("24GB", 24 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        ("512 mib", 2**29),
        ("7", 7),
        (7, 7),
        ("1_000b", 1000),
    ],
)
def test_a_size_is_read(said, size_in_bytes):
    assert size(said) == size_in_bytes


@pytest.mark.parametrize("said", ["", "gib", "-1gib", "1,5gib", "1e3", "24 g i b", True, None, 2.5, []])
def test_what_is_no_size_is_refused(said):
    with pytest.raises(ValueError, match=r"no size|no unit"):
        size(said)


KEYS = (
    "packing.strategy", "packing.buffer", "truncation.max_length", "run.learning_rate", "run.batch_size",
    "run.accumulation", "run.steps", "checkpointing.mode", "quantization.mode", "run.seed", "loss.type",
)  # fmt: skip


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("packing.strategi", "packing.strategy"),
        ("packin.strategy", "packing.strategy"),
        ("max_len", "truncation.max_length"),
        ("learning-rate", "run.learning_rate"),
        ("per_device_train_batch_size", "run.batch_size"),
        ("gradient_accumulation_steps", "run.accumulation"),
        ("gradient_checkpoint", "checkpointing.mode"),
        ("gradient_checkpointing", "checkpointing.mode"),
        ("quantizaton", "quantization.mode"),
        ("max_steps", "run.steps"),
        ("loss_type", "loss.type"),
    ],
)
def test_the_nearest_key_comes_first(said, meant):
    assert nearest(said, KEYS)[0] == meant


@pytest.mark.parametrize("said", ["zzz", "colour", "wandb", ""])
def test_nothing_is_offered_where_nothing_is_near(said):
    assert nearest(said, KEYS) == ()


@pytest.mark.parametrize(
    ("said", "offered"),
    [
        ("run.lr", ()),  # a section that exists, and nothing in it that is near
        ("quantization.bits", ()),
        ("packing.batch", ()),
        ("run.max_length", ("truncation.max_length",)),  # the right key in the wrong section
        ("packing.stratgy", ("packing.strategy",)),
        ("batch_size", ("run.batch_size",)),
        ("gradient_accumulation_steps", ("run.accumulation",)),  # not also `run.steps`, with which it shares a word
    ],
)
def test_only_what_is_near_is_offered(said, offered):
    assert nearest(said, KEYS) == offered
