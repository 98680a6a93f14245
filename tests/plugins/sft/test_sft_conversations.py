"""Conversations: exactly one beginning, an end that is learned, the assistant's words told apart, and nothing invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import memcfg_data
import pytest
from memcfg_data import hooks
from memcfg_sft.tokens import Learned, tokenise
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from memcfg import DataError, conversations

pytestmark = pytest.mark.torch

PAD, BOS, EOS, USER, ASSISTANT, HI, YO, UNKNOWN = range(8)
PLAIN = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %} <u> {{ m['content'] }}"
    "{% else %} <a> {{ m['content'] }} </s>{% endif %}{% endfor %}"
)
MARKED = PLAIN.replace(
    " <a> {{ m['content'] }} </s>", " <a> {% generation %}{{ m['content'] }} </s>{% endgeneration %}"
)
ASKING = PLAIN + "{% if add_generation_prompt %} <a>{% endif %}"
FORGETFUL = PLAIN.replace("<a> {{ m['content'] }} </s>", "<a>{% if loop.last %} hi{% endif %} {{ m['content'] }} </s>")


def words(template: str | None = PLAIN, *, pad: str = "<pad>") -> PreTrainedTokenizerFast:
    """A tokenizer of whole words that puts `<s>` before every text, as its template does too."""
    names = ["<pad>", "<s>", "</s>", "<u>", "<a>", "hi", "yo", "<unk>"]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(n, special=True, normalized=False) for n in names[:3]])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token=pad, unk_token="<unk>"
    )
    made.chat_template = template
    return made


def user(text: str = "hi") -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str = "yo") -> dict[str, str]:
    return {"role": "assistant", "content": text}


def tokens(tokenizer: Any, rows: list[dict[str, Any]], **learned: Any) -> list[tuple[list[int], list[int]]]:
    """(ids, labels) of each row."""
    made = tokenise(memcfg_data.dataset(rows), tokenizer, Learned(**learned))
    return [(row["input_ids"], row["labels"]) for row in made]


ONE = [BOS, USER, HI, ASSISTANT, YO, EOS]
TWO = [*ONE, *ONE[1:]]
FORMS = [
    ({"messages": [user(), assistant()]}, "messages"),
    ({"text": "<s> <u> hi <a> yo </s>"}, "rendered text"),
    ({"prompt": [user()], "completion": [assistant()]}, "a prompt and a completion of messages"),
    ({"prompt": [user()], "completion": "yo"}, "the answer as text"),
    ({"prompt": "<s> <u> hi", "completion": " <a> yo </s>"}, "a rendered prompt and its completion"),
]


@pytest.mark.parametrize("pad", ["<pad>", "</s>"])
@pytest.mark.parametrize(("row", "because"), FORMS, ids=[b for _, b in FORMS])
def test_one_beginning_in_every_form(row: dict[str, Any], because: str, pad: str) -> None:
    if row.get("completion") == "yo":
        row = row | {"completion": [assistant()]}
    ((ids, labels),) = tokens(words(pad=pad), [row])
    assert ids == ONE, because
    assert labels[-1] == EOS, "the end is learned"


@pytest.mark.parametrize("template", [PLAIN, ASKING])
def test_the_beginning_of_an_answer_has_one_beginning(template: str) -> None:
    (ids,) = conversations.prompts(words(template), [[user()]])
    assert ids == ONE[: 3 if template == PLAIN else 4]


LABELS = [
    (PLAIN, {}, TWO, "the whole conversation"),
    (
        PLAIN,
        {"assistant_only": True},
        [-100] * 3 + TWO[3:6] + [-100] * 2 + TWO[8:],
        "the marker is no separate question",
    ),
    (ASKING, {"assistant_only": True}, [-100] * 4 + TWO[4:6] + [-100] * 3 + TWO[9:], "the marker asks for the answer"),
    (MARKED, {"assistant_only": True}, [-100] * 4 + TWO[4:6] + [-100] * 3 + TWO[9:], "the template marks it"),
]


@pytest.mark.parametrize("pad", ["<pad>", "</s>"])
@pytest.mark.parametrize(("template", "learned", "labels", "because"), LABELS)
def test_what_is_learned_of_two_turns(
    template: str, learned: dict[str, Any], labels: list[int], because: str, pad: str
) -> None:
    rows = [{"messages": [user(), assistant(), user(), assistant()]}]
    assert tokens(words(template, pad=pad), rows, **learned) == [(TWO, labels)], because


PAIRS = [
    ({}, [-100] * 8 + TWO[8:], "the completion"),
    ({"completion_only": False}, TWO, "all of it"),
    ({"completion_only": False, "assistant_only": True}, [-100] * 3 + TWO[3:6] + [-100] * 2 + TWO[8:], "both answers"),
    ({"assistant_only": True}, [-100] * 8 + TWO[8:], "the answer in the completion"),
]


@pytest.mark.parametrize(("learned", "labels", "because"), PAIRS)
def test_what_is_learned_of_a_prompt_with_a_history(learned: dict[str, Any], labels: list[int], because: str) -> None:
    rows = [{"prompt": [user(), assistant(), user()], "completion": [assistant()]}]
    assert tokens(words(), rows, **learned) == [(TWO, labels)], because


def test_an_end_follows_where_the_template_has_none() -> None:
    bare = PLAIN.replace(" </s>", "")
    assert tokens(words(bare), [{"messages": [user(), assistant()]}]) == [(ONE, ONE)]
    ((ids, labels),) = tokens(words(bare), [{"messages": [user(), assistant()]}], assistant_only=True)
    assert (ids[-1], labels[-1]) == (EOS, EOS)


@pytest.mark.parametrize("name", ["plain", "chatml"])
def test_built_in_templates_mark_the_assistant(name: str) -> None:
    tokenizer = words(None)
    conversations.use_template(tokenizer, name)
    text = conversations.render(tokenizer, [user(), assistant()])
    assert "assistant" in text
    assert text.startswith(conversations.render(tokenizer, [user()], answer=True))
    (found,) = conversations.encode(tokenizer, [[user(), assistant()]], learned=True)
    assert found.learned is not None
    assert any(found.learned)
    assert not all(found.learned)


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    tokenizer = words(None)
    (tmp_path / "mine.jinja").write_text(PLAIN)
    conversations.use_template(tokenizer, str(tmp_path / "mine.jinja"))
    assert tokens(tokenizer, [{"messages": [user(), assistant()]}]) == [(ONE, ONE)]


REFUSED = [
    (words(None), {"messages": [user()]}, {}, "the tokenizer has no chat template"),
    (
        words(FORGETFUL),
        {"messages": [user(), assistant()] * 2},
        {"assistant_only": True},
        "writes earlier turns otherwise",
    ),
    (words("{{ raise_exception('roles must alternate') }}"), {"messages": [user()]}, {}, "roles must alternate"),
    (words(), {"text": "hi"}, {"assistant_only": True}, "the rows hold plain text"),
    (words(), {"messages": [user()]}, {"completion_only": True}, "the rows hold conversations"),
    (words(), {"prompt": "hi", "completion": "yo"}, {"assistant_only": True}, "prompts and completions of text"),
    (words(), {"input_ids": [1, 2]}, {"assistant_only": True}, "token ids without `assistant_masks`"),
]


@pytest.mark.parametrize(("tokenizer", "row", "learned", "text"), REFUSED, ids=[r[-1] for r in REFUSED])
def test_what_cannot_be_learned(tokenizer: Any, row: dict[str, Any], learned: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text) as caught:
        tokens(tokenizer, [row], **learned)
    assert len(caught.value.problems) == 1


def test_a_template_that_is_no_file() -> None:
    with pytest.raises(DataError, match="is neither `plain` nor `chatml` nor a file") as caught:
        conversations.use_template(words(), "nowhere.jinja")
    assert caught.value.problems[0].key == "data.chat_template"


CALLS = [
    {"messages": [{"role": "user", "content": "hi"}]},
    {"messages": [
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
        {"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "g", "arguments": {"b": 2}}}]},
    ]},
]  # fmt: skip
DUMP = "{% for m in messages %}{{ m | tojson }}{% endfor %}"


def from_list(folder: Path) -> datasets.Dataset:
    return memcfg_data.dataset(CALLS)


def from_file(folder: Path) -> datasets.Dataset:
    (folder / "calls.jsonl").write_text("".join(json.dumps(row) + "\n" for row in CALLS))
    return hooks.file_rows({"data.source": "jsonl"}, str(folder / "calls.jsonl"), "data.path").rows


def again(folder: Path) -> datasets.Dataset:
    from_file(folder)
    return from_file(folder)


def saved(folder: Path) -> datasets.Dataset:
    from_list(folder).save_to_disk(folder / "saved")
    return datasets.load_from_disk(folder / "saved")


def parquet(folder: Path) -> datasets.Dataset:
    from_list(folder).to_parquet(folder / "calls.parquet")
    return hooks.file_rows({"data.source": "parquet"}, str(folder / "calls.parquet"), "data.path").rows


@pytest.mark.parametrize("made", [from_list, from_file, again, saved, parquet])
def test_nothing_is_invented_and_nothing_lost(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMCFG_CACHE", str(tmp_path / "cache"))
    rows = made(tmp_path)
    assert list(rows) == CALLS
    assert list(rows.select([1, 0])) == CALLS[::-1]


def test_nulls_that_structs_add_are_removed() -> None:
    """A data set that was built elsewhere has one struct for all objects of a column."""
    structs = datasets.Dataset.from_list(CALLS[:1] + CALLS[1:], on_mixed_types=None)
    texts: list[str] = []
    tokenizer = words(DUMP)
    real = conversations.rendered_ids
    conversations.rendered_ids = lambda t, found: texts.extend(found) or real(t, found)
    try:
        tokenise(structs, tokenizer, Learned())
    finally:
        conversations.rendered_ids = real
    assert len(texts) == 2
    assert not any("null" in text or "None" in text for text in texts)
    assert '"arguments": {"a": 1}' in texts[1]
    assert '"arguments": {"b": 2}' in texts[1]
    assert "tool_calls" not in texts[0]


def test_tools_reach_the_template() -> None:
    template = "{{ tools | tojson if tools else '' }}" + PLAIN
    rows = [{"messages": [user()], "tools": [{"name": "f"}]}, {"messages": [user()]}]
    found = tokens(words(template), rows)
    assert len(found[0][0]) > len(found[1][0])


def test_another_template_makes_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMCFG_CACHE", str(tmp_path / "cache"))
    memcfg_data.dataset([{"messages": [user(), assistant()]}]).save_to_disk(tmp_path / "rows")
    found = [
        tokenise(datasets.load_from_disk(tmp_path / "rows"), words(template), Learned(assistant_only=only))
        for template, only in ((PLAIN, False), (PLAIN, False), (PLAIN, True), (MARKED, True))
    ]
    files = [rows.cache_files[0]["filename"] for rows in found]
    assert files[0] == files[1]
    assert len(set(files)) == 3


TOO_SHORT = [
    ({"messages": [{"role": "user", "content": "hi"}]}, 2, {}, 2, "a beginning and a role"),
    ({"messages": [{"role": "user", "content": "hi"}]}, 3, {}, None, "one word is left"),
    ({"prompt": [{"role": "user", "content": "hi"}], "completion": "yo"}, 2, {}, 2, "a prompt that is a conversation"),
    ({"text": "hi yo"}, 1, {}, 1, "the tokenizer begins a text"),
    ({"messages": [{"role": "user", "content": "hi"}]}, 2, {"truncation.mode": "keep_end"}, None, "the end is kept"),
    ({"messages": [{"role": "user", "content": "hi"}]}, 2, {"packing.strategy": "bfd_split"}, None, "it goes on elsewhere"),
    ({"input_ids": [1, 2, 3]}, 1, {}, None, "ids that were brought have no beginning"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "limit", "more", "begins", "because"), TOO_SHORT)
def test_a_length_that_the_beginning_fills(
    row: dict[str, Any], limit: int, more: dict[str, Any], begins: int | None, because: str
) -> None:
    from memcfg_sft.hooks import refuse_too_short

    plan: Any = {"truncation.max_length": limit} | more
    if begins is None:
        refuse_too_short(plan, row, words())
        return
    with pytest.raises(DataError) as caught:
        refuse_too_short(plan, row, words())
    assert str(caught.value) == (
        f"`truncation.max_length`: {limit} leaves no word of a document, for each begins with {begins} "
        f"token{'s' if begins > 1 else ''} of the tokenizer and its template\n  raise it, as in `truncation.max_length=1024`"
    ), because
