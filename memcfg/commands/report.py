"""`memcfg report RUN`: the page of a run or of a sweep, made again from the files in its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.commands.arguments import Arguments
from memcfg.commands.journal import PAGE_FILE
from memcfg.errors import Problem, RequestError, RunError
from memcfg.report.console import Terminal

if TYPE_CHECKING:
    from memcfg.runfiles import Fault

USAGE: Final = "write `memcfg report RUN [--out FILE]`, with the folder of a run or of a sweep"


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Write the page and say what of the folder it could not show. Exit code 0 if there is a page."""
    arguments.refuse_flags("json", "out", "open")
    path = _path(arguments.rest)
    folder = path.parent if path.is_file() else path
    try:
        content, kind, faults = made(folder)
    except RunError as error:
        raise _of(path, error) if path.is_file() else error from None
    target = Path(arguments.values.get("out", folder / PAGE_FILE))
    from memcfg.files import write_atomic

    write_atomic(target, content)
    if arguments.has("json"):
        from memcfg.report import jsonform

        terminal.show(jsonform.text(as_json(kind, folder, target, faults)))
    else:
        from memcfg.report.words import wrapped

        for fault in faults:
            terminal.say(*wrapped(f"warning: `{fault.file}` {fault.text}", indent="  ", first=""))
        terminal.show(f"wrote {target}")
    if arguments.has("open"):
        _open(target, terminal)
    return 0


def made(folder: Path) -> tuple[str, str, tuple[Fault, ...]]:
    """The page of a folder, whether it is a `run` or a `sweep`, and what is wrong with its files. Raises `RunError` for a
    folder that holds neither."""
    from memcfg.runfiles import Fault, is_sweep, read, read_sweep

    if is_sweep(folder):
        from memcfg.report.pages.sweep import page_of as sweep_page

        sweep = read_sweep(folder)
        return sweep_page(sweep), "sweep", sweep.faults
    from memcfg.report.pages.run import page_of, sections

    run = read(folder)
    wrong = tuple(Fault(file, text) for file, text in sections(run).wrong)
    return page_of(run), "run", (*run.faults, *wrong)


def as_json(kind: str, folder: Path, target: Path, faults: tuple[Fault, ...]) -> dict[str, Any]:
    """What `report --json` prints."""
    return {
        "ok": True,
        "kind": kind,
        "folder": str(folder),
        "file": str(target),
        "faults": [{"file": fault.file, "text": fault.text} for fault in faults],
    }


def _path(words: list[str]) -> Path:
    """The folder that was named, or a file in it. Raises `RequestError` for anything else."""
    if len(words) != 1:
        raise RequestError(Problem("`report` takes one folder", fix=USAGE))
    return Path(words[0])


def _of(file: Path, error: RunError) -> RunError:
    """What is wrong with the folder of a file, told of the file that was named."""
    return RunError(*(replace(problem, key=str(file), text=f"its folder {problem.text}") for problem in error.problems))


def _open(target: Path, terminal: Terminal) -> None:
    import webbrowser

    if not webbrowser.open(target.resolve().as_uri()):
        terminal.say("warning: there is no browser to open it with")
