"""What can be said before anything heavy is imported: that files are there and hold rows of some form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memcfg import conversations, hub
from memcfg_data import downloaded, files, reading


def look(plan: Mapping[str, Any]) -> None:
    """Raise `DataError` for files that are not there, are empty, or whose first row has no form; for a name of the hub where
    there is neither a network nor a download; for a chat template that is not there."""
    if plan.get("data.chat_template") is not None:
        conversations.template(plan["data.chat_template"])
    if plan["data.source"] == "hub":
        _look_up(str(plan["data.path"]))
    if plan["data.source"] not in files.SUFFIXES:
        return
    for option in ("data.path", "data.eval_path"):
        if plan.get(option) is not None:
            first = files.found(plan[option], option, plan["data.source"])[0]
            reading.maker(plan)(first, {}).find_columns(whole=False)


def _look_up(name: str) -> None:
    if not Path(name).expanduser().exists() and not hub.reachable() and not downloaded.there(name):
        raise downloaded.missing(name)
