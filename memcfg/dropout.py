"""What trainers that may switch dropout off declare alike: when it is off, and what they do if nobody says.

Nothing heavy is imported: plugins call this where they declare themselves."""

from __future__ import annotations

from memcfg.solver.expr import Option, key
from memcfg.solver.rules import Default, Force, Rule


def dropout_rules(option: Option, usual: bool, *, because: str, of: str = "policy and reference") -> list[Rule]:
    """Rules of `TRAINER.disable_dropout`, which is `usual` if nobody says otherwise. `of`: the models that it is about."""
    trainer = option.key.partition(".")[0]
    return [
        Force(
            "trainer.dropout", "disabled", when=option.on, id=f"{trainer}.dropout.off",
            because=f"`{option.key}` switches it off in {of}",
        ),
        Default(
            option, usual, when=key("trainer.name") == trainer, id=f"{option.key}.default", because=because,
        ),
    ]  # fmt: skip
