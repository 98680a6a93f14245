"""Text and conversations to token ids: with one beginning, and with the spans that the assistant wrote.

A conversation is a list of messages (`{"role": ..., "content": ...}`), as the chat templates of Transformers take it. What
a template renders is tokenised as it stands: the template says how a conversation begins and ends, so the tokenizer adds
nothing to it.

    found = encode(tokenizer, [turns])              # Encoded(ids, learned)
    prompts(tokenizer, [turns])                     # ids up to where the assistant's answer begins

`learned` is true for the tokens of the assistant's turns. A template with `{% generation %}` marks them itself. For any
other one a turn is what rendering it adds to what came before; a template that writes earlier turns otherwise than later
ones (some leave out their reasoning) cannot be marked that way, and is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memcfg.errors import DataError, Problem
from memcfg.files import reason

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Turns = Sequence[Mapping[str, Any]]

BUILT_IN = {
    "plain": (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ 'assistant: ' }}"
        "{% generation %}{{ (m['content'] or '') + (eos_token or '') }}{% endgeneration %}"
        "{% else %}{{ m['role'] + ': ' + (m['content'] or '') }}{% endif %}{{ '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    ),
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
        "{% generation %}{{ (m['content'] or '') + '<|im_end|>' }}{% endgeneration %}"
        "{% else %}{{ (m['content'] or '') + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
}
"""Templates that come with memcfg. Both mark what the assistant wrote."""

MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")
OPTION = "data.chat_template"


@dataclass(frozen=True)
class Encoded:
    """Token ids, and which of them the assistant wrote (None where that was not asked)."""

    ids: list[int]
    learned: list[bool] | None = None


@dataclass(frozen=True)
class Beside:
    """What a row says beside its messages: the tools that may be called, and the template's own options."""

    tools: Any = None
    options: Mapping[str, Any] | None = None

    @staticmethod
    def of(row: Mapping[str, Any]) -> Beside:
        tools = row.get("tools")
        return Beside(json.loads(tools) if isinstance(tools, str) else tools, row.get("chat_template_kwargs"))


NOTHING = Beside()


def use_template(tokenizer: PreTrainedTokenizerBase, name: str | None) -> None:
    """Give the tokenizer the template of this name: a built-in one, or a Jinja file. None leaves it its own. What is
    generated later from the trained model then reads as it did in training."""
    if name is not None:
        tokenizer.chat_template = template(name)


def template(name: str) -> str:
    """The template of this name. Raises `DataError` for one that is not there."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is not UTF-8"
        text = f"`{name}` is neither {' nor '.join(f'`{n}`' for n in BUILT_IN)} nor a file that can be read ({why})"
        raise DataError(Problem(text, OPTION)) from error


def state(tokenizer: PreTrainedTokenizerBase) -> str:
    """What token ids depend on, as text. The tokenizer's padding and truncation is none of it: calling it changes that."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary: Any = tokenizer.get_vocab() if backend is None else json.loads(backend.to_str())
    if backend is not None:
        vocabulary = {k: v for k, v in vocabulary.items() if k not in ("padding", "truncation")}
    named = [type(tokenizer).__name__, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.chat_template]
    return json.dumps([*named, vocabulary], sort_keys=True, default=str)


# --------------------------------------------------------------------------------------------------------- text


def text_ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of texts, with the tokenizer's own special tokens. A beginning-of-text token that a text brings too stays
    one."""
    if not texts:
        return []
    found: list[list[int]] = tokenizer(list(texts), return_attention_mask=False, verbose=False)["input_ids"]
    bos = tokenizer.bos_token_id
    if bos is None:
        return found
    return [ids[1:] if ids[:2] == [bos, bos] else ids for ids in found]


def beginning(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any]) -> int:
    """How many tokens stand before the first word of a row like this one: the tokenizer's and the template's own."""
    turns = row.get("messages") or (row.get("prompt") if isinstance(row.get("prompt"), list) else None)
    if "input_ids" in row or (turns and not isinstance(turns[0].get("content"), str)):
        return 0
    words = ("a", "", "b")  # of which a small vocabulary may know neither, and a template leave out the empty one
    if turns:
        said = [[{**turns[0], "content": word}, *turns[1:]] for word in words]
        first, *others = rendered_ids(tokenizer, [render(tokenizer, t, Beside.of(row)) for t in said])
    else:
        first, *others = text_ids(tokenizer, words)
    return min(seam(first, other) for other in others)


def seam(prompt: Sequence[int], whole: Sequence[int]) -> int:
    """Index of the first token that belongs to what follows the prompt: the length of the common beginning."""
    if list(whole[: len(prompt)]) == list(prompt):
        return len(prompt)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, whole, strict=False)))


# ------------------------------------------------------------------------------------------------ conversations


def render(tokenizer: PreTrainedTokenizerBase, turns: Turns, beside: Beside = NOTHING, *, answer: bool = False) -> str:
    """The text of a conversation; with `answer` up to where the assistant's next words begin (after its last ones, where
    the conversation ends with them)."""
    if tokenizer.chat_template is None:
        fix = f"name one: `{OPTION}=chatml`, `{OPTION}=plain` or a Jinja file"
        raise DataError(Problem("the rows hold conversations, and the tokenizer has no chat template", OPTION, fix=fix))
    goes_on = answer and bool(turns) and turns[-1]["role"] == "assistant"
    try:
        text = tokenizer.apply_chat_template(
            [dict(turn) for turn in turns], tools=beside.tools, tokenize=False, add_generation_prompt=answer and not goes_on,
            continue_final_message=goes_on, **(beside.options or {}),
        )  # fmt: skip
    except Exception as error:  # templates raise whatever they like
        roles = ", ".join(str(turn.get("role")) for turn in turns)
        text = f"the chat template refuses a conversation ({roles}): {type(error).__name__}: {error}"
        raise DataError(Problem(text, OPTION)) from error
    return str(text)


def rendered_ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of rendered conversations, to which the tokenizer adds nothing."""
    if not texts:
        return []
    found: list[list[int]] = tokenizer(
        list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False
    )["input_ids"]
    return found


def prompts(
    tokenizer: PreTrainedTokenizerBase, conversations: Sequence[Turns], beside: Sequence[Beside] | None = None
) -> list[list[int]]:
    """Token ids up to where the assistant's answer begins."""
    said = beside or [NOTHING] * len(conversations)
    texts = [render(tokenizer, turns, b, answer=True) for turns, b in zip(conversations, said, strict=True)]
    return rendered_ids(tokenizer, texts)


def encode(
    tokenizer: PreTrainedTokenizerBase, conversations: Sequence[Turns], beside: Sequence[Beside] | None = None,
    *, learned: bool = False,
) -> list[Encoded]:  # fmt: skip
    """Whole conversations, with an end-of-text token where the template ends them with no special token; with `learned`
    also which tokens the assistant wrote."""
    said = beside or [NOTHING] * len(conversations)
    texts = [render(tokenizer, turns, b) for turns, b in zip(conversations, said, strict=True)]
    if not learned:
        found = [Encoded(ids) for ids in rendered_ids(tokenizer, texts)]
    else:
        spans = _marked if MARKED.search(tokenizer.chat_template or "") else _measured
        found = [spans(tokenizer, *given) for given in zip(texts, conversations, said, strict=True)]
    ends = tuple(filter(str.strip, {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special}))
    return [_ended(tokenizer.eos_token_id, text, ends, e) for text, e in zip(texts, found, strict=True)]


def _marked(tokenizer: PreTrainedTokenizerBase, text: str, turns: Turns, beside: Beside) -> Encoded:
    """A conversation whose template marks what the assistant wrote."""
    found: Any = tokenizer.apply_chat_template(
        [dict(turn) for turn in turns],
        tools=beside.tools,
        return_dict=True,
        return_assistant_tokens_mask=True,
        **(beside.options or {}),
    )
    return Encoded(list(found["input_ids"]), [bool(m) for m in found["assistant_masks"]])


def _measured(tokenizer: PreTrainedTokenizerBase, text: str, turns: Turns, beside: Beside) -> Encoded:
    """A conversation whose template marks nothing: a turn is what rendering it adds."""
    if not tokenizer.is_fast:
        fix = "a template with generation markers, or the fast tokenizer, is needed"
        raise DataError(Problem("this tokenizer does not say where its tokens lie in the text", OPTION, fix=fix))
    spans = [_span(tokenizer, text, turns, at, beside) for at, t in enumerate(turns) if t["role"] == "assistant"]
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    learned = [any(a < end and b > start for start, end in spans) for a, b in found["offset_mapping"]]
    return Encoded(list(found["input_ids"]), learned)


def _span(tokenizer: PreTrainedTokenizerBase, text: str, turns: Turns, at: int, beside: Beside) -> tuple[int, int]:
    """Where in the text the assistant's turn `at` begins and ends."""
    before = render(tokenizer, turns[:at], beside, answer=True) if at else ""
    if at and (turns[at - 1]["role"] == "assistant" or not text.startswith(before)):
        before = render(tokenizer, turns[:at], beside)
    after = text if at + 1 == len(turns) else render(tokenizer, turns[: at + 1], beside)
    if not text.startswith(before) or not text.startswith(after):
        fix = f"give one that marks them with `{{% generation %}}`: a Jinja file, or `{OPTION}=chatml`"
        what = "the chat template writes earlier turns otherwise than the last, so the assistant's cannot be told apart"
        raise DataError(Problem(what, OPTION, fix=fix))
    return len(before), len(after)


def _ended(eos: int | None, text: str, ends: tuple[str, ...], found: Encoded) -> Encoded:
    """With an end-of-text token, unless the template put a special token at the end."""
    if eos is None or text.rstrip().endswith(ends):
        return found
    last = None if found.learned is None else [*found.learned, bool(found.learned and found.learned[-1])]
    return Encoded([*found.ids, eos], last)
