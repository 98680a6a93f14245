"""What can be said of reward models before anything heavy is imported: that they are there, and are reward models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memcfg import Problem, RunError
from memcfg.modelfiles import check_weights, located

OPTION: Final = "rewards.models"
KIND: Final = "ForSequenceClassification"
TWO: Final = {"0": "", "1": ""}
"""What a configuration that lists no labels means."""


def look(plan: Mapping[str, Any]) -> None:
    """Raise `RunError` for a reward model that is not there, lacks weights, or is none."""
    for path in plan["rewards.models"]:
        check(path)


def check(path: str) -> str:
    """The folder of a reward model (or its name on the hub). Raises `RunError` for anything else."""
    place = located(path, OPTION)
    if not Path(place).is_dir():
        return place
    file = Path(place) / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        made, labels = list(config.get("architectures") or []), config.get("id2label", TWO)
        count = len(labels)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RunError(Problem(f"`{file}` is no configuration of a model: {error}", key=OPTION)) from error
    if made and not any(KIND in name for name in made):
        text = f"`{path}` holds a `{made[0]}`, and a reward model is a sequence classifier (`...{KIND}`)"
        raise RunError(Problem(text, key=OPTION, fix="train one: python -m memcfg trainer=reward"))
    if count != 1:
        text = f"the sequence classifier in `{path}` has {count} labels, and a reward is one number"
        raise RunError(Problem(text, key=OPTION, fix="take one that was made with `num_labels=1`"))
    check_weights(Path(place), OPTION)
    return place


def labels(paths: list[str]) -> list[str]:
    """What figures call each: the last part of its path, with those before it where two would be alike or where it is the
    `model` of a run's folder."""
    parts = [Path(path).parts for path in paths]
    found = []
    for own in parts:
        size = 2 if own[-1] == "model" and len(own) > 1 else 1
        while size < len(own) and sum(other[-size:] == own[-size:] for other in parts) > 1:
            size += 1
        found.append("/".join(own[-size:]).strip("/"))
    return found
