"""Our masks are those that Transformers makes of restarting positions, for every kind of layer."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memcfg_attention.hooks import MaskedAttention
from memcfg_attention.masks import masks
from memcfg_padding_free.hooks import RowsLayout
from transformers import Gemma3TextConfig, Llama4TextConfig, LlamaConfig, MistralConfig
from transformers.masking_utils import create_masks_for_generate

from memcfg.batch import Batch, Documents
from memcfg.engine.layout import Paper

pytestmark = pytest.mark.torch

CONFIGS: dict[str, Any] = {
    "full": LlamaConfig(),
    "sliding": MistralConfig(sliding_window=3),
    "sliding and full": Gemma3TextConfig(
        sliding_window=3, num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"]
    ),
    "chunked and full": Llama4TextConfig(
        attention_chunk_size=3, num_hidden_layers=2, layer_types=["chunked_attention", "full_attention"]
    ),
}


@pytest.fixture
def batch() -> Batch:
    ids = [torch.ones(n, dtype=torch.long) for n in (5, 1, 1, 8, 2)]
    return RowsLayout(Paper(0, multiple_of=4))(Documents(ids, ids, [[0, 1, 2], [3, 4]]))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_masks_equal_those_of_transformers(name, implementation, batch):
    config = CONFIGS[name]
    config._attn_implementation = implementation
    dtype = torch.float32 if implementation == "eager" else None
    try:
        theirs = create_masks_for_generate(
            config, torch.zeros(2, batch.input_ids.shape[1], 4), None, None, batch.position_ids
        )
    except TypeError as error:  # Transformers 5.17 with chunked attention
        pytest.skip(f"this Transformers cannot: {error}")
    mine = masks(batch, config, dtype=dtype)
    if not isinstance(theirs, dict):
        theirs, mine = {"": theirs}, {"": mine}
    elif not isinstance(mine, dict):
        (kind,) = theirs
        mine = {kind: mine}
    assert mine.keys() == theirs.keys()
    owned = batch.document_ids >= 0  # what padding sees is nobody's business
    for kind, mask in theirs.items():
        assert mine[kind].dtype == mask.dtype
        assert torch.equal(mine[kind].squeeze(1)[owned], mask.squeeze(1)[owned]), kind


def test_no_row_of_a_mask_is_empty(batch):
    seen = masks(batch, SimpleNamespace(), dtype=None)
    assert bool(seen.any(-1).all()), "a softmax over nothing is not a number"


def test_lengths_make_the_blocks():
    ids = [torch.ones(n, dtype=torch.long) for n in (2, 1, 1)]
    seen = masks(RowsLayout(Paper(0))(Documents(ids, ids, [[0, 1, 2]])), SimpleNamespace(), dtype=None)
    assert seen[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


KINDS_OF_MASK = [
    ("sdpa", torch.bool, "it takes which positions are seen"),
    ("eager", torch.float32, "it adds the mask to the scores"),
    ("flex_attention", torch.float32, "so does the function that Transformers gives it where the mask is a tensor"),
]


@pytest.mark.parametrize(("name", "dtype", "because"), KINDS_OF_MASK)
def test_what_an_implementation_does_with_a_mask_decides_its_type(name, dtype, because, batch):
    attention = MaskedAttention(name, CONFIGS["full"], torch.float32, own_masks=True)
    mask = attention.inputs(batch)["attention_mask"]
    assert mask.dtype == dtype, because
    if dtype != torch.bool:
        assert float(mask.max()) == 0
        assert float(mask.min()) == torch.finfo(dtype).min
