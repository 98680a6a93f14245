"""What peft warns of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

OTHERWISE = (
    r"Invalid `\w+` \(.*Adjusted", r"The following \w+ keys did not match", r"`\w+` specified but will be ignored",
    r"You have requested `ensure_weight_tying`, but", r"ensure_weight_tying=True but", r".* but no modules were excluded",
    r"target_\w+=.* were set but no", "Ephemeral GPU offloading is not supported",
)  # fmt: skip
"""Warnings of peft that say that a setting was changed or left out."""


@contextmanager
def quiet() -> Iterator[None]:
    """peft warns of what is settled here (shared embeddings, layers that are trained whole), and asks Transformers by a
    name that it has left behind. Where it warns that it did something else than it was asked for, that is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        for message in OTHERWISE:
            warnings.filterwarnings("error", message)
        yield
