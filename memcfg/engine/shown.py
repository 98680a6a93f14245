"""`completions.jsonl`: some of the completions that logged steps were trained on, with what each was worth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memcfg.engine.metrics import read
from memcfg.errors import Problem, RunError
from memcfg.files import reason, write_atomic

SHOWN: Final = 8
"""Completions of a step that are kept, spread over its prompts."""


class CompletionsFile:
    """Lines of `step`, `prompt`, `completion`, `tokens`, `finished`, `rewards` by name and `reward`. `latest` are the last
    step's."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.latest: list[dict[str, Any]] = []

    def go_on(self, step: int) -> None:
        """Leave out what steps after this one have written: they are taken again."""
        if self.path is not None and self.path.is_file():
            kept = [line for line in read(self.path) if line["step"] <= step]
            write_atomic(self.path, "".join(map(_line, kept)))

    def note(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Add some of a step's completions. Raises `RunError` where the file cannot be written."""
        every = max(1, len(records) // SHOWN)
        self.latest = [{"step": step, **record} for record in records[::every][:SHOWN]]
        if self.path is None or not self.latest:
            return
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.writelines(map(_line, self.latest))
        except OSError as error:
            raise RunError(Problem(f"cannot write `{self.path}`: {reason(error)}", key="run.dir")) from error


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
