"""Hydra's and OmegaConf's complaints, retold as memcfg's.

Most of what users get wrong is found before Hydra sees it. What is left is about the files: a preset that names a group
that does not exist, an interpolation to nowhere, broken YAML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import yaml
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from memcfg.compose.spelling import nearest
from memcfg.errors import Problem, RequestError

INTERPOLATIONS: Final[Mapping[str, str]] = {
    r"Environment variable '(.*)' not found": "the environment variable `{}` is not set",
    r"Missing mandatory value: (.*)": "`${{{0}}}` stands for what you chose for `{0}`, and you chose nothing",
    r"[Ii]nterpolation key '(.*)' not found": "`${{{0}}}` stands for another option, and there is no `{0}`",
}
"""What OmegaConf says of an interpolation to nowhere, and what is said here."""

Asks = Callable[[str], str | None]
"""Which file asks for a config that does not exist, if that is known."""


@contextmanager
def refusing(key: str | None = None, asks: Asks = lambda wanted: None) -> Iterator[None]:
    """Turn what Hydra, OmegaConf and the YAML reader raise into a `RequestError`."""
    try:
        yield
    except yaml.YAMLError as error:
        raise RequestError(_yaml(error, key)) from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise RequestError(_hydra(error, key, asks)) from error


def _yaml(error: yaml.YAMLError, key: str | None) -> Problem:
    mark: Any = getattr(error, "problem_mark", None)
    if mark is None:
        return Problem(f"not valid YAML: {error}", key=key)
    return Problem(f"not valid YAML: {getattr(error, 'problem', error)}", key=f"{mark.name}:{mark.line + 1}")


def _hydra(error: BaseException, key: str | None, asks: Asks) -> Problem:
    if isinstance(error.__cause__, OmegaConfBaseException):
        error = error.__cause__
    wanted = getattr(error, "missing_cfg_file", None)
    if wanted:
        return _missing(error, str(wanted), asks(str(wanted)))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    where = getattr(error, "full_key", None) or key
    for pattern, told in INTERPOLATIONS.items():
        if found := re.search(pattern, text):
            return Problem(told.format(found[1]), key=where)
    fix = (
        "in a file's `defaults:`, write `'on'` and `'off'` in quotes"
        if "item value in defaults : bool" in text
        else None
    )
    return Problem(f"{text[:1].lower()}{text[1:]}", key=where, fix=fix)


def _missing(error: Any, wanted: str, origin: str | None) -> Problem:
    group, _, name = wanted.rpartition("/")
    options = [str(option) for option in getattr(error, "options", None) or ()]
    close = nearest(name, options)
    known = f"; it has {', '.join(f'`{option}`' for option in options)}" if options and not close else ""
    said = f" ({origin})" if origin else ""
    if not group:
        return Problem(f"no such config{said}", key=wanted)
    return Problem(f"`{group}` has no `{name}`{known}{said}", key=group, nearest=close)
