"""Folders (and hub names) that models were saved in: whether they are there, whole, and what is wrong with them in one message.

`key` is the option that gave the path, which errors name. Nothing here imports torch."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from memcfg import hub
from memcfg.errors import Problem, RunError

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
KEY = "model.path"


def located(path: str, key: str = KEY) -> str:
    """The folder that `path` names, or `path` itself if it can be a hub id. Raises `RunError` for a folder that is not
    there or holds no model."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise no_model(folder, key)
        return str(folder)
    if folder.exists():
        raise RunError(Problem(f"`{path}` is a file; give the folder that the model was saved in", key=key))
    refuse_missing(path, key)
    hub.reachable()  # where it is not, what follows finds out at once
    return path


def no_model(folder: Path, key: str = KEY) -> RunError:
    """What to say of a folder without `config.json`."""
    if (folder / "adapter_config.json").is_file():
        text = f"the folder `{folder}` holds an adapter, and not the model that it belongs to"
        return RunError(Problem(text, key=key, fix="give a folder that a whole model was saved in"))
    return RunError(Problem(f"the folder `{folder}` holds no `config.json`, so no saved model", key=key))


def refuse_missing(path: str, key: str = KEY) -> None:
    """Raise `RunError` for the path of a folder that is not there, which no hub id looks like."""
    if path.startswith(("/", ".", "~")) or "\\" in path or path.count("/") > 1:
        raise RunError(Problem(f"no such folder `{path}`", key=key))


def check_weights(folder: Path, key: str = KEY) -> None:
    """Raises `RunError` if a saved model's weights are not all there. A hub id has nothing to check."""
    if not folder.is_dir():
        return
    indices = [folder / f"{name}.index.json" for name in WEIGHTS]
    index = next((i for i in indices if i.is_file()), None)
    if index is not None:
        missing = sorted({f for f in _shards(index, key) if not (folder / f).is_file()})
        if missing:
            text = f"`{folder}` lacks {len(missing)} of the weight files that its index names: " + ", ".join(
                missing[:3]
            )
            raise RunError(Problem(text, key=key, fix="copy the folder again, whole"))
    elif not any((folder / name).is_file() for name in WEIGHTS):
        raise RunError(Problem(f"`{folder}` holds no weights (`{WEIGHTS[0]}`)", key=key))


def all_there(path: str, missing: Collection[str], fix: str, key: str = KEY) -> None:
    """Raises `RunError` for weights that no file held: Transformers would go on with random ones and a warning."""
    if missing:
        names = ", ".join(f"`{name}`" for name in sorted(missing)[:3]) + (", ..." if len(missing) > 3 else "")
        text = f"the files of `{path}` lack {len(missing)} of the model's weights: {names}"
        raise RunError(Problem(text, key=key, fix=fix))


@contextmanager
def explained(path: str, what: str, key: str = KEY) -> Iterator[None]:
    """Turn what Transformers raises about a bad folder or an id that cannot be fetched into one clear error."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    wrong = (ValueError, TypeError, KeyError, ArithmeticError, StrictDataclassError)  # of what a configuration says
    try:
        yield
    except (OSError, RuntimeError, SafetensorError, *wrong) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        reason = " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])
        text = f"the {what} of `{path}` cannot be loaded: {reason}"
        fix = None if Path(path).is_dir() else "a hub id needs the network or an earlier download; or give a folder"
        raise RunError(Problem(text, key=key, fix=fix)) from error


def _shards(index: Path, key: str) -> list[str]:
    try:
        return list(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError) as error:
        raise RunError(Problem(f"`{index}` is no index of weights", key=key)) from error
