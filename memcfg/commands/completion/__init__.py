"""`memcfg completion bash|zsh|fish`: what a shell needs to complete memcfg's words."""

# The script asks `memcfg completion reply -- WORDS` on every tab: the words so far, the last being completed. It is answered
# with a line for each candidate, `WORD<tab>DOC`. Nothing heavy is imported for it.

from __future__ import annotations

from pathlib import Path
from typing import Final

from memcfg.commands.arguments import Arguments, read
from memcfg.compose.spelling import nearest
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal

SHELLS: Final = ("bash", "zsh", "fish")
REPLY: Final = "reply"


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print the script of a shell."""
    if arguments.rest[:2] == [REPLY, "--"]:
        return _reply(arguments.rest[2:], terminal)
    said = read(arguments.rest)
    said.command, words = "completion", [w for w in (said.command, *said.rest) if w is not None]
    said.refuse_flags("json")
    if len(words) != 1 or words[0] not in SHELLS:
        fix = 'write `memcfg completion bash`, `zsh` or `fish`, as in `eval "$(memcfg completion bash)"`'
        near = nearest(words[0], SHELLS) if len(words) == 1 else ()
        raise RequestError(Problem("`completion` takes the name of a shell", nearest=near, fix=fix))
    script = Path(__file__).with_name(f"{words[0]}.sh").read_text(encoding="utf-8")
    if terminal.json:
        from memcfg.report import jsonform

        terminal.show(jsonform.text({"ok": True, "shell": words[0], "script": script}))
    else:
        terminal.show(script.rstrip())
    return 0


def _reply(words: list[str], terminal: Terminal) -> int:
    """Print the candidates. Whatever goes wrong, a shell in the middle of a line is told nothing."""
    from memcfg.commands.completion.candidates import candidates

    try:
        found = candidates(words or [""])
    except Exception:
        return 1
    terminal.show("\n".join(f"{word}\t{doc}" for word, doc in found))
    return 0
