"""From rows to token ids and labels: by position, with one beginning and one end."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
from memcfg_sft import hooks
from memcfg_sft.tokens import Learned, seam, tokenise
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from memcfg import DataError
from memcfg.engine.ledger import Ledger

pytestmark = pytest.mark.torch

PAD, BOS, EOS, USER, ASSISTANT, HI, YO, UNKNOWN = range(8)


def words(*, pad: str = "<pad>", begins: bool = True) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words that puts `<s>` before every text."""
    names = ["<pad>", "<s>", "</s>", "<u>", "<a>", "hi", "yo", "<unk>"]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(n, special=True, normalized=False) for n in names[:3]])
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token=pad, unk_token="<unk>"
    )


def pairs() -> PreTrainedTokenizerFast:
    """A byte-pair tokenizer that joins a with b and c with d, and adds nothing."""
    names = ["<pad>", "<s>", "</s>", "a", "b", "c", "d", " ", "ab", "cd"]
    model = models.BPE({name: i for i, name in enumerate(names)}, [("a", "b"), ("c", "d")])
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(model), bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def tokens(
    tokenizer: Any, completion_only: bool | None = None, **columns: list[Any]
) -> list[tuple[list[int], list[int]]]:
    """(ids, labels) of each row."""
    rows = tokenise(datasets.Dataset.from_dict(columns), tokenizer, Learned(completion_only))
    return [(row["input_ids"], row["labels"]) for row in rows]


CHAT = [BOS, USER, HI, ASSISTANT, YO, EOS]
BEGINNINGS = [
    ({"text": ["<u> hi <a> yo"]}, "the tokenizer adds the beginning"),
    ({"text": ["<s> <u> hi <a> yo </s>"]}, "the text was rendered with its own"),
    ({"prompt": ["<u> hi"], "completion": [" <a> yo"]}, "a prompt and its completion"),
    ({"prompt": ["<s> <u> hi"], "completion": [" <a> yo </s>"]}, "both rendered"),
]


@pytest.mark.parametrize(("columns", "because"), BEGINNINGS)
def test_one_beginning_and_one_end(columns: dict[str, list[str]], because: str) -> None:
    ((ids, _),) = tokens(words(), **columns)
    assert ids == CHAT, because


def test_no_beginning_where_the_tokenizer_has_none() -> None:
    ((ids, _),) = tokens(words(begins=False), text=["<u> hi"])
    assert ids == [USER, HI, EOS]


@pytest.mark.parametrize("pad", ["<pad>", "</s>"])
def test_the_end_is_learned_even_where_padding_is_the_same_token(pad: str) -> None:
    ((ids, labels),) = tokens(words(pad=pad), prompt=["<u> hi"], completion=[" <a> yo </s> <u> hi <a> yo"])
    assert ids == [BOS, USER, HI, ASSISTANT, YO, EOS, USER, HI, ASSISTANT, YO, EOS]
    assert labels == [-100, -100, -100, *ids[3:]]
    assert (labels[5], labels[10]) == (EOS, EOS)


COMPLETION_ONLY = [(None, [-100] * 3 + CHAT[3:]), (True, [-100] * 3 + CHAT[3:]), (False, CHAT)]


@pytest.mark.parametrize(("value", "labels"), COMPLETION_ONLY)
def test_what_is_learned_of_a_prompt(value: bool | None, labels: list[int]) -> None:
    assert tokens(words(), value, prompt=["<u> hi"], completion=[" <a> yo"]) == [(CHAT, labels)]


def test_all_of_a_text_is_learned() -> None:
    assert tokens(words(), text=["<u> hi"]) == [([BOS, USER, HI, EOS],) * 2]


SEAMS = [
    # prompt, completion, ids, first learned index, because
    ("ab", "cd", [8, 9, 2], 1, "the seam lies between two tokens"),
    ("a", "bcd", [8, 9, 2], 0, "a token spans the seam, so it is learned"),
    ("aba", "bd", [8, 8, 6, 2], 1, "only the spanning token is learned with the completion"),
    ("", "ab", [8, 2], 0, "no prompt"),
    ("c", "d", [9, 2], 0, "prompt and completion are one token"),
]


@pytest.mark.parametrize(("prompt", "completion", "ids", "first", "because"), SEAMS)
def test_where_the_prompt_ends(prompt: str, completion: str, ids: list[int], first: int, because: str) -> None:
    assert tokens(pairs(), prompt=[prompt], completion=[completion]) == [(ids, [-100] * first + ids[first:])], because


def test_the_seam_of_a_tokenizer_that_ends_prompts_itself() -> None:
    assert seam([1, 5, 6, 2], [1, 5, 6, 7, 2]) == 3
    assert seam([1, 5, 6], [1, 5]) == 2


IDS = [
    ({"input_ids": [[4, 5, 6]]}, [4, 5, 6], "all tokens"),
    ({"input_ids": [[4, 5, 6]], "labels": [[-100, 5, -100]]}, [-100, 5, -100], "labels as given"),
    ({"input_ids": [[4, 5, 6]], "completion_mask": [[0, 1, 1]]}, [-100, 5, 6], "a mask"),
    ({"input_ids": [[4, 5, 6]], "completion_mask": [[0, 1, 1]], "assistant_masks": [[1, 1, 0]]}, [-100, 5, -100],
     "both masks must allow a token"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "labels", "because"), IDS)
def test_token_ids_are_taken_as_they_are(columns: dict[str, Any], labels: list[int], because: str) -> None:
    assert tokens(words(), **columns) == [([4, 5, 6], labels)], because


def test_types_are_fixed_whatever_the_data() -> None:
    rows = tokenise(datasets.Dataset.from_dict({"input_ids": [[4, 5]], "labels": [[-100, 5]]}), words(), Learned())
    assert {name: feature.feature.dtype for name, feature in rows.features.items()} == {
        "input_ids": "int32",
        "labels": "int32",
    }


def prepared(
    tokenizer: Any, plan: dict[str, Any] | None = None, **columns: list[Any]
) -> tuple[datasets.Dataset, Ledger]:
    ledger = Ledger()
    rows = datasets.Dataset.from_dict(columns)
    return hooks.memcfg_prepare_dataset(plan or {}, rows, tokenizer, ledger, "train"), ledger


def test_rows_without_text_or_target_are_counted() -> None:
    rows, ledger = prepared(words(), prompt=["hi", "hi", "hi"], completion=[" yo", "", " yo hi"])
    assert len(rows) == 2
    assert (ledger.rows_in, ledger.rows_dropped, dict(ledger.reasons)) == (3, 1, {"no text": 1})
    assert (ledger.tokens_in, ledger.tokens_kept, ledger.tokens_supervised, ledger.balance) == (9, 9, 5, 0)


def test_rows_whose_labels_are_all_masked_are_dropped_with_their_tokens() -> None:
    rows, ledger = prepared(words(), input_ids=[[4, 5], [4, 5, 6]], labels=[[-100, -100], [4, -100, 6]])
    assert rows["input_ids"][:] == [[4, 5, 6]]
    assert (ledger.tokens_in, ledger.tokens_kept, ledger.tokens_dropped, ledger.balance) == (5, 3, 2, 0)
    assert (ledger.tokens_supervised, dict(ledger.reasons)) == (1, {"no target left": 1})


FAULTS: list[tuple[dict[str, list[Any]], dict[str, Any], str]] = [
    (
        {"body": ["a"]},
        {},
        r"neither `text`, nor `messages`, nor `prompt` and `completion`, nor `input_ids`; columns: `body`",
    ),
    ({"prompt": ["a"]}, {}, r"columns: `prompt`"),
    ({"text": ["hi"]}, {"sft.completion_only": True}, r"the rows hold plain text"),
    ({"text": ["", "  "]}, {}, r"all 2 train rows are empty"),
    ({"input_ids": [[1, 2]], "labels": [[-100, -100]]}, {}, r"none of the 1 train rows has a target"),
    ({"input_ids": [[1]], "labels": [[1]]}, {}, r"none of the 1 train rows has a target"),
]


@pytest.mark.parametrize(("columns", "plan", "text"), FAULTS)
def test_data_that_cannot_be_trained_on(columns: dict[str, list[Any]], plan: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        prepared(words(), plan, **columns)


def test_the_same_tokens_are_made_once(tmp_path: Any) -> None:
    datasets.Dataset.from_dict({"text": ["hi", "yo"]}).save_to_disk(tmp_path)
    tokenizer = words()
    first = tokenise(datasets.load_from_disk(tmp_path), tokenizer, Learned())
    tokenizer(["hi", "hi yo"], padding=True, truncation=True, max_length=1)
    again = tokenise(datasets.load_from_disk(tmp_path), tokenizer, Learned())
    other = tokenise(datasets.load_from_disk(tmp_path), words(begins=False), Learned())
    assert first.cache_files == again.cache_files != other.cache_files
