"""What a micro-batch holds: a number of rows, or rows up to a number of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcfg import Check, Default, Enum, Forbid, Ignored, Plugin, Setting, key, only_when

mode = Enum("batching.mode", ("rows", "tokens"), doc="whether a micro-batch is bounded by rows or by tokens")
tokens = Setting(
    "batching.tokens", int, default=8192, minimum=1, unit="tokens", doc="most tokens of a micro-batch, padding included"
)
by_tokens = mode == "tokens"


def _longest_fits(values: Mapping[str, Any]) -> str | None:
    budget, longest = values["batching.tokens"], values["truncation.max_length"]
    if longest is None or longest <= budget:
        return None
    return f"a document of `truncation.max_length={longest}` tokens does not fit in `batching.tokens={budget}`"


plugin = Plugin(
    name="batching",
    doc="decides what a micro-batch holds",
    options=[mode, tokens],
    rules=[
        Default(mode, "rows", id="batching.mode.default", because="every micro-batch then counts the same number of rows"),
        Forbid(
            by_tokens & key("packing.strategy").isin("bfd", "bfd_split", "wrapped"), id="batching.tokens.packing",
            because="packed rows are all of one length already", suggest=["batching.mode=rows", "packing.strategy=none"],
        ),
        Check(
            [tokens, "truncation.max_length"], _longest_fits, when=by_tokens, id="batching.tokens.longest",
            because="a document is never divided between micro-batches",
        ),
        Forbid(
            by_tokens & key("data.streaming").on, id="batching.tokens.streaming",
            because="rows of similar length are found among all of them, and a stream is never all there",
            suggest=["batching.mode=rows", "data.streaming=false"],
        ),
        Ignored(
            "run.batch_size", id="batching.tokens.rows", when=by_tokens,
            because="a micro-batch then holds as many rows as fit in `batching.tokens`",
        ),
        *only_when(by_tokens, tokens, because="only `batching=tokens` has a budget"),
    ],
    groups={"batching": "what a micro-batch holds"},
    hooks="memcfg_batching.hooks",
    active=by_tokens,
)  # fmt: skip
