"""Attention over cumulative lengths: where documents begin, what the model is handed, and on a GPU that nothing differs."""

import pytest
import torch
from memcfg_attention.hooks import WithoutCudnn
from memcfg_attention.lengths import LengthsAttention, cumulative, register, varlen
from memcfg_padding.hooks import PaddedLayout
from memcfg_padding_free.hooks import FlatLayout, RowsLayout

from memcfg.batch import Documents
from memcfg.engine.layout import Paper

pytestmark = pytest.mark.torch


def documents(*lengths: int) -> Documents:
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(3, 64, (n,), generator=generator) for n in lengths]
    return Documents(ids, [x.clone() for x in ids], [[*range(len(ids))]])


@pytest.mark.parametrize(
    ("lengths", "edges"),
    [
        ((3, 1, 4), [0, 3, 4, 8]),
        ((1, 1, 1), [0, 1, 2, 3]),
        ((2, 1, 1, 3), [0, 2, 3, 4, 7]),
    ],
)
def test_documents_begin_where_the_one_before_ends(lengths, edges):
    """One-token documents are documents: positions alone (0, 0, 0) would not show them."""
    assert cumulative(FlatLayout(Paper(0))(documents(*lengths))) == edges


def test_padding_at_the_end_is_a_document_of_its_own():
    assert cumulative(FlatLayout(Paper(0, multiple_of=16))(documents(3, 1, 4))) == [0, 3, 4, 8, 16]


def test_padded_rows_are_documents_with_their_padding():
    apart = documents(3, 1, 4)
    apart.rows = [[0], [1], [2]]
    assert cumulative(PaddedLayout(Paper(0))(apart)) == [0, 4, 8, 12]


def test_rows_that_share_documents_are_not_lengths():
    with pytest.raises(ValueError, match="one row"):
        cumulative(RowsLayout(Paper(0))(Documents([torch.ones(2)] * 4, [torch.ones(2)] * 4, [[0, 1], [2, 3]])))


def test_the_model_is_handed_lengths_and_no_mask():
    inputs = LengthsAttention("memcfg_varlen").inputs(FlatLayout(Paper(0))(documents(3, 1, 4)))
    assert inputs["cu_seq_lens_q"].tolist() == [0, 3, 4, 8]
    assert inputs["cu_seq_lens_q"].dtype == torch.int32
    assert inputs["max_length_q"] == 4
    assert "attention_mask" not in inputs


def test_without_lengths_it_is_plain_causal_attention(attended):
    """A forward without lengths (generation, a user's own call) is `sdpa`'s, with padding on the left too."""
    register()
    ids, mask = torch.randint(3, 64, (2, 7)), torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7])
    model, _ = attended("llama", "sdpa")
    with torch.no_grad():
        expected = model(ids, attention_mask=mask, use_cache=False).logits
        model.set_attn_implementation("memcfg_varlen")
        found = model(ids, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], rtol=1e-5, atol=1e-5)


def test_it_runs_on_tensors_without_storage():
    query = torch.empty(1, 4, 8, 16, dtype=torch.bfloat16, device="meta")
    pair = torch.empty(1, 2, 8, 16, dtype=torch.bfloat16, device="meta")
    edges = torch.empty(4, dtype=torch.int32, device="meta")
    out, _ = varlen(torch.nn.Module(), query, pair, pair, None, scaling=0.25, cu_seq_lens_q=edges, max_length_q=4)
    assert out.shape == (1, 8, 4, 16)


def test_cudnn_is_off_inside_and_as_it_was_afterwards():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    context = WithoutCudnn()
    for _ in range(2):
        with context, context:
            assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.cudnn_sdp_enabled() == before


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [FlatLayout(Paper(0)), FlatLayout(Paper(0, multiple_of=64))], ids=["", "rounded"])
def test_on_a_gpu_documents_over_lengths_are_the_documents_alone(attended, architecture, layout):
    """Against float32 `sdpa` of each document alone, the error in bfloat16 is no larger than that of bfloat16 `sdpa`."""
    whole = documents(9, 1, 2, 1, 6, 33)
    exact, _ = attended(architecture, "sdpa", device="cuda")
    rounded, _ = attended(architecture, "sdpa", device="cuda", dtype=torch.bfloat16)
    model, attention = attended(architecture, "varlen", device="cuda", dtype=torch.bfloat16)
    batch = layout(whole).to("cuda")
    with torch.no_grad():
        alone = [exact(x.cuda()[None], use_cache=False).logits[0] for x in whole.input_ids]
        coarse = [rounded(x.cuda()[None], use_cache=False).logits[0] for x in whole.input_ids]
        found = model(**batch.inputs, **attention.inputs(batch), use_cache=False).logits[0]
    expected, coarse = torch.cat(alone), torch.cat(coarse).float()
    error = (found[: len(expected)].float() - expected).norm() / expected.norm()
    assert error <= 1.5 * (coarse - expected).norm() / expected.norm()


@pytest.mark.gpu
def test_on_a_gpu_gradients_flow_and_no_document_reaches_another(attended):
    model, attention = attended("mistral", "varlen", device="cuda", dtype=torch.bfloat16)
    batch = FlatLayout(Paper(0))(documents(9, 1, 6)).to("cuda")
    hidden = model.get_input_embeddings()(batch.input_ids).detach().requires_grad_()
    kwargs = {"inputs_embeds": hidden, "position_ids": batch.position_ids, "use_cache": False}
    logits = model(**kwargs, **attention.inputs(batch)).logits
    logits[0, 10:].float().sum().backward()
    assert hidden.grad[0, :10].abs().max() == 0
    assert hidden.grad[0, 10:].abs().max() > 0
