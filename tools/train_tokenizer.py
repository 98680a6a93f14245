"""Trains the tokenizer that is shipped with the tiny model, from the standard library's documentation and source.

    python tools/train_tokenizer.py [FOLDER]

Writes `tokenizer.json` and `tokenizer_config.json`. The result depends on the Python version (the frozen files were made
with 3.11.7) and on the `tokenizers` version, and on nothing else: the corpus has a fixed order and training is exact.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from memcfg_data import stdlib
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
# Letters and digits apart, runs of spaces whole: indentation is a large part of Python.
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
FOLDER = Path(__file__).resolve().parent.parent / "plugins" / "memcfg_model" / "assets" / "tokenizer"


def trained() -> Tokenizer:
    """A byte-level BPE tokenizer: any text round-trips, and no text is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[PAD, END, *ROLES], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    folder = stdlib.root()
    corpus = stdlib.ordered(pair for file in stdlib.files(folder) for pair in stdlib.pairs(file, folder))
    tokenizer.train_from_iterator((pair.prompt + pair.completion for pair in corpus), trainer)
    return tokenizer


def main(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    trained().save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": END,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
