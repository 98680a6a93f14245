"""Prompts with completions as tokens: by place, cut one by one, and nothing lost uncounted."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from memcfg import DataError, completions
from memcfg.completions import EMPTY, EQUAL, PAIR, TOO_LONG, Bounds, Form, divided
from memcfg.engine.ledger import Ledger
from memcfg.rows import NO_TARGET

pytestmark = pytest.mark.torch

PAD, BOS, EOS = 0, 1, 2
WHOLE = Bounds(None, "keep_start")


def words(*, begins: bool = True, pad: str = "<pad>") -> PreTrainedTokenizerFast:
    """A tokenizer of whole words w3 to w39, `w7` being token 7, that puts `<s>` before every text."""
    names = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(3, 39)), "<unk>"]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(n, special=True, normalized=False) for n in names[:3]])
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token=pad, unk_token="<unk>"
    )


def said(*ids: int) -> str:
    return " ".join(f"w{i}" for i in ids)


def prepared(rows: list[dict[str, Any]], bounds: Bounds = WHOLE, form: Form | None = None, **kind: Any) -> Any:
    return completions.prepare(datasets.Dataset.from_list(rows), words(**kind), form or Form(PAIR), bounds)


def kept(rows: list[dict[str, Any]], bounds: Bounds = WHOLE, **kind: Any) -> tuple[Any, Ledger]:
    ledger = Ledger()
    found = completions.account(prepared(rows, bounds, **kind), ledger, split="train")
    assert ledger.balance == 0
    return found, ledger


def test_one_beginning_one_end_and_the_prompt_is_no_target() -> None:
    row = {"prompt": said(3, 4) + " ", "chosen": said(5), "rejected": said(6, 7)}
    (found,) = kept([row])[0]
    assert found["input_ids"] == [BOS, 3, 4, 5, EOS, BOS, 3, 4, 6, 7, EOS]
    assert found["labels"] == [-100, -100, -100, 5, EOS, -100, -100, -100, 6, 7, EOS]
    assert found["seq_lengths"] == [5, 6]


def test_the_end_is_learned_though_padding_has_its_id() -> None:
    row = {"prompt": said(3) + " ", "chosen": said(5), "rejected": said(6)}
    (found,) = kept([row], pad="</s>")[0]
    assert found["labels"] == [-100, -100, 5, EOS, -100, -100, 6, EOS]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("keep_start", None),
        ("keep_end", [[4, 5, 6, 7, 8, 9, EOS], [5, 6, 7, 8, 10, EOS]]),
    ],
)
def test_a_prompt_that_fills_the_limit(mode: str, expected: Any) -> None:
    """Six tokens of prompt, completions of two and one (with their end), and room for five or so: cut at its start a
    completion vanishes, and the row is dropped and counted; cut at its end every completion keeps a target."""
    row = {"prompt": said(3, 4, 5, 6, 7, 8) + " ", "chosen": said(9), "rejected": said(10)}
    bounds = Bounds(5, mode)
    (found,) = prepared([row], bounds, begins=False)
    if expected is None:
        assert (found["reason"], found["uncut"]) == (NO_TARGET, 16)
        with pytest.raises(DataError, match="no train row is left of 1 \\(1 rows: no target left\\)"):
            completions.account(prepared([row], bounds, begins=False), Ledger(), split="train")
        return
    first, second = found["seq_lengths"]
    assert (first, second) == (5, 5)
    assert found["input_ids"] == [6, 7, 8, 9, EOS, 6, 7, 8, 10, EOS]
    assert found["labels"] == [-100, -100, -100, 9, EOS, -100, -100, -100, 10, EOS]


def test_each_completion_is_cut_by_itself() -> None:
    row = {"prompt": said(3) + " ", "chosen": said(4, 5), "rejected": said(*range(6, 15))}
    found, ledger = kept([row], Bounds(6, "keep_end"), begins=False)
    assert found[0]["seq_lengths"] == [4, 6]
    assert found[0]["labels"][4:] == [10, 11, 12, 13, 14, EOS]
    assert (ledger.tokens_in, ledger.tokens_kept, ledger.tokens_truncated) == (15, 10, 5)


def test_a_side_that_is_too_long_takes_its_row_along() -> None:
    rows = [
        {"prompt": said(3) + " ", "chosen": said(4), "rejected": said(*range(5, 12))},
        {"prompt": said(3) + " ", "chosen": said(4), "rejected": said(5)},
    ]
    found, ledger = kept(rows, Bounds(4, "drop", last_only=True), begins=False)
    assert [row["labels"] for row in found] == [[-100, -100, EOS, -100, -100, EOS]]
    assert dict(ledger.reasons) == {TOO_LONG: 1}


def test_a_longer_limit_is_advised_only_where_it_helps() -> None:
    for row, advised in (
        ({"chosen": "w5", "rejected": "w5"}, None),
        ({"chosen": said(9), "rejected": said(10)}, "raise it"),
    ):
        found = prepared([{"prompt": said(3, 4, 5, 6, 7, 8) + " ", **row}], Bounds(5, "keep_start"), begins=False)
        with pytest.raises(DataError) as caught:
            completions.account(found, Ledger(), split="train", fix="raise it")
        assert caught.value.problems[0].fix == advised


@pytest.mark.parametrize(
    ("chosen", "rejected", "reason"),
    [("", "w5", EMPTY), ("w5", "  ", EMPTY), (None, "w5", EMPTY), ("w5", "w5", EQUAL)],
)
def test_what_cannot_be_compared_is_dropped_and_counted(chosen: Any, rejected: Any, reason: str) -> None:
    good = {"prompt": "w3 ", "chosen": "w4", "rejected": "w5"}
    found, ledger = kept([good, {"prompt": "w3 ", "chosen": chosen, "rejected": rejected}])
    assert len(found) == 1
    assert dict(ledger.reasons) == {reason: 1}
    with pytest.raises(DataError, match=reason):
        kept([{"prompt": "w3 ", "chosen": chosen, "rejected": rejected}])


@pytest.mark.parametrize(
    ("one", "other", "prompt", "rest"),
    [
        ("say yes", "say no", "say", [" yes", " no"]),
        ("say yes", "say yet", "say", [" yes", " yet"]),
        ("say:\nyes", "say:\nno", "say:\n", ["yes", "no"]),
        ("say yes", "say yes, sure", "say", [" yes", " yes, sure"]),
        ("yes", "no", "", ["yes", "no"]),
        ("same", "same", "same", ["", ""]),
    ],
)
def test_a_prompt_that_is_not_told_apart(one: str, other: str, prompt: str, rest: list[str]) -> None:
    assert divided(one, other) == (prompt, rest)


CHAT = "{% for m in messages %}{{ m['content'] + ' ' }}{% endfor %}{% if add_generation_prompt %}w38 {% endif %}"


def test_conversations_have_their_common_turns_as_prompt() -> None:
    tokenizer = words(begins=False)
    tokenizer.chat_template = CHAT
    turn = lambda role, text: {"role": role, "content": text}  # noqa: E731
    sides = [[turn("user", "w3"), turn("assistant", answer)] for answer in ("w4", "w5 w6")]
    told = {"prompt": [turn("user", "w3")], "chosen": sides[0][1:], "rejected": sides[1][1:]}
    for row in ({"chosen": sides[0], "rejected": sides[1]}, told):
        found = completions.prepare(datasets.Dataset.from_list([row]), tokenizer, Form(PAIR), WHOLE)[0]
        assert found["input_ids"] == [3, 4, EOS, 3, 5, 6, EOS]
        assert found["labels"] == [-100, 4, EOS, -100, 5, 6, EOS]


def test_pairs_come_apart_into_marked_rows() -> None:
    rows = [
        {"prompt": "w3 ", "chosen": "w4", "rejected": "w5"}, {"prompt": "w3 ", "chosen": "w4", "rejected": "w4"},
        {"prompt": "w6 ", "chosen": "w7", "rejected": "w8"},
    ]  # fmt: skip
    found = prepared(rows, form=Form(PAIR, apart=True), begins=False)
    assert found["label"][:] == [True, False, True, False, True, False]
    assert found["reason"][:] == [None, None, EQUAL, EQUAL, None, None]
    assert found["input_ids"][:] == [[3, 4, EOS], [3, 5, EOS], [], [], [6, 7, EOS], [6, 8, EOS]]


def test_columns_are_named_where_they_are_missing() -> None:
    with pytest.raises(DataError, match="`trainer=dpo` needs rows with `chosen` and `rejected`; their columns: `text`"):
        completions.require_columns(datasets.Dataset.from_dict({"text": ["a"]}), [PAIR], "dpo")
