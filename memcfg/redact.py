"""Secrets that were typed on a command line, kept out of everything that is written or shown.

What is secret is told by the option's name (`token`, `secret`, `password`, `api_key`), as a command line is written down
before anybody knows which options are declared secret."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from memcfg.files import write_atomic

MASKED: Final = "***"

_NAMES: Final = r"(?:[\w.]*[._])?(?<!eos_)(?<!bos_)(?<!pad_)(?<!unk_)(?<!mask_)(?:token|secret|password|api_?key)"
_VALUE: Final = re.compile(rf"(?i)(?<![\w.=])({_NAMES}['\"]?\s*[=:]\s*)('[^']*'|\"[^\"]*\"|[^,}}\s]+(?:,[^,}}=\s]+)*)")


def redacted(words: Sequence[str]) -> tuple[str, ...]:
    """Overrides, without the values of those that are secret by their name."""
    return tuple(_VALUE.sub(lambda found: found[1] + MASKED, word) for word in words)


def clean(file: Path) -> None:
    """Hide the secrets in a YAML file that somebody else wrote, where there are any."""
    text = file.read_text(encoding="utf-8")
    hidden = "".join(_VALUE.sub(_quoted, line) for line in text.splitlines(keepends=True))
    if hidden != text:
        write_atomic(file, hidden)


def _quoted(found: re.Match[str]) -> str:
    """Bare stars are an alias to YAML."""
    empty = found[2] in ("null", "???", "''")
    return found[0] if empty else found[1] + (MASKED if found[1].rstrip().endswith("=") else f"'{MASKED}'")
