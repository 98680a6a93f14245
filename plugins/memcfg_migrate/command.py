"""`memcfg from-trl FILE`, `from-axolotl FILE`, `from-llamafactory FILE`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memcfg import Problem, RequestError
from memcfg.commands.arguments import Arguments, read
from memcfg.compose.spelling import nearest
from memcfg.report.console import Terminal
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.reading import MAPPINGS, mapping
from memcfg_migrate.schedule import Length

OWN: Final = ("--trainer", "--rows", "--processes", "--write")


@dataclass(frozen=True)
class Asked:
    """The words of one command: the file, what memcfg should know beside it, and further overrides."""

    path: Path
    trainer: str | None
    length: Length
    write: str | None
    more: list[str]


Reader = Callable[[Asked], Outcome]


def from_trl(words: Sequence[str]) -> int:
    """Overrides for a config of TRL: JSON, YAML, or a Python file that is not run."""
    return _main("from-trl", words, _trl, "CONFIG.json, CONFIG.yaml or SCRIPT.py")


def from_axolotl(words: Sequence[str]) -> int:
    """Overrides for a config of axolotl."""
    return _main("from-axolotl", words, _axolotl, "CONFIG.yaml")


def from_llamafactory(words: Sequence[str]) -> int:
    """Overrides for a config of LLaMA-Factory."""
    return _main("from-llamafactory", words, _llamafactory, "CONFIG.yaml")


def _trl(asked: Asked) -> Outcome:
    from memcfg_migrate.trl.read import source
    from memcfg_migrate.trl.translate import outcome

    return outcome(source(asked.path, asked.trainer), asked.trainer, asked.length)


def _axolotl(asked: Asked) -> Outcome:
    from memcfg_migrate.axolotl.translate import outcome

    return outcome(mapping(asked.path), asked.length)


def _llamafactory(asked: Asked) -> Outcome:
    from memcfg_migrate.llamafactory.translate import outcome

    return outcome(mapping(asked.path), asked.length)


def _main(name: str, words: Sequence[str], reader: Reader, form: str) -> int:
    own, rest = _own(words)
    arguments = read(rest)
    arguments.command, words = name, [w for w in (arguments.command, *arguments.rest) if w is not None]
    arguments.refuse_flags("json", "all")
    terminal = Terminal(quiet=arguments.has("quiet"), color=not arguments.has("no_color"))
    return _answer(_asked(name, own, words, form), reader, arguments, terminal)


def _answer(asked: Asked, reader: Reader, arguments: Arguments, terminal: Terminal) -> int:
    from memcfg.compose.request import installed
    from memcfg_migrate import show
    from memcfg_migrate.plan import lines, migrate

    outcome = reader(asked)
    found = migrate(outcome, asked.more, installed(), arguments.config_dir)
    if asked.write is not None:
        _write(asked.write, show.preset(found), terminal)
    if arguments.has("json"):
        from memcfg.report import jsonform

        terminal.show(jsonform.text(show.data(found)))
        return found.exit_code
    if arguments.has("quiet"):
        terminal.show(*lines(found, 80))
        for remark in outcome.of_kind("learning"):  # the command alone would look like the same training
            terminal.fail(f"warning: {remark.key} has no equivalent: {remark.text}")
    else:
        terminal.show(*show.text(found, everything=arguments.has("all")))
    if outcome.problems:
        from memcfg.report.errors import error_text

        terminal.fail(error_text(RequestError(*outcome.problems)))
    return found.exit_code


def _write(target: str, content: str, terminal: Terminal) -> None:
    from memcfg.files import write_atomic

    path = Path(target)
    if path.exists():
        raise RequestError(Problem("is there already", key=target, fix="name another file, or remove this one"))
    write_atomic(path, content)
    if path.parent.name == "experiment":
        folder = path.parent.parent
        terminal.say(f"wrote {path}: `python -m memcfg --config-dir {folder} experiment={path.stem}`")
    else:
        terminal.say(f"wrote {path}: put it into a folder `experiment` to choose it by name")


def _own(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """This command's own flags, and the other words."""
    own: dict[str, str] = {}
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        name, given, value = word.partition("=")
        if name not in OWN:
            rest.append(word)
        elif given:
            own[name] = value
        elif (following := next(waiting, None)) is None:
            raise RequestError(Problem("needs a value", key=name))
        else:
            own[name] = following
    return own, rest


def _asked(name: str, own: dict[str, str], words: list[str], form: str) -> Asked:
    files = [word for word in words if "=" not in word and not word.startswith("~")]
    if len(files) != 1:
        text = "needs a file" if not files else f"reads one file, not {len(files)}"
        raise RequestError(Problem(text, key=name, fix=f"write `memcfg {name} {form}`"))
    trainer = own.get("--trainer")
    if trainer is not None:
        _trainer(name, trainer)
    rows, processes = _number(own, "--rows"), _number(own, "--processes") or 1
    more = [word for word in words if word != files[0]]
    return Asked(_file(name, files[0]), trainer, Length(rows, processes), own.get("--write"), more)


def _file(name: str, said: str) -> Path:
    """The file. Only `from-trl` reads more than mappings."""
    path = Path(said)
    forms = (*MAPPINGS, ".py") if name == "from-trl" else MAPPINGS
    if not path.exists():
        raise RequestError(Problem("no such file", key=said))
    if path.is_dir():
        raise RequestError(Problem("a folder, not a file", key=said))
    if path.suffix not in forms and path.suffix in (".bin", ".pt", ".pkl"):
        fix = "write the config as JSON (`args.to_json_string()`), or give the script"
        raise RequestError(Problem("a pickle, which could run code, is never read", key=said, fix=fix))
    if path.suffix not in forms:
        raise RequestError(Problem(f"is told by its name to be none of {', '.join(forms)}", key=said))
    return path


def _trainer(name: str, trainer: str) -> None:
    from memcfg_migrate.trl.trainers import TRAINERS

    if name != "from-trl":
        raise RequestError(Problem(f"`{name}` finds the trainer in the file", key="--trainer"))
    if trainer not in TRAINERS:
        menu = ", ".join(f"`{known}`" for known in TRAINERS)
        raise RequestError(
            Problem(f"`{trainer}` is none of {menu}", key="--trainer", nearest=nearest(trainer, TRAINERS))
        )


def _number(own: dict[str, str], flag: str) -> int | None:
    given = own.get(flag)
    if given is None:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise RequestError(Problem(f"`{given}` is no whole number above 0", key=flag))
    return int(given)
