"""What is no decoder of text with a causal head is told by its configuration, before anything is loaded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from memcfg_model.kinds import ALONE, INSTEAD, other_kind
from memcfg_model.types import MODEL_TYPES

from memcfg import RunError
from memcfg.cli import main

REMOTE = {"AutoModelForCausalLM": "modeling.Own"}


@pytest.mark.parametrize(
    ("config", "what", "instead"),
    [
        ({"model_type": "bert", "vocab_size": 9}, "a `bert` model, an encoder, whose tokens see the ones that they should predict", INSTEAD),
        ({"model_type": "t5", "vocab_size": 9}, "a `t5` model, an encoder with a decoder, which writes one text for another", INSTEAD),
        (
            {"model_type": "new", "is_encoder_decoder": True, "vocab_size": 9},
            "a `new` model, an encoder with a decoder, which writes one text for another", INSTEAD,
        ),
        (
            {"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {}},
            "a `llava` model of more than text, around a text model of type `llama`", ALONE,
        ),
        ({"model_type": "new", "vocab_size": 9, "text_config": {}}, "a `new` model of more than text, around a text model", ALONE),
        ({"model_type": "git", "vocab_size": 9, "vision_config": {}}, "a `git` model of more than text", ALONE),
        ({"model_type": "vit", "hidden_size": 8}, "a `vit` model without a vocabulary (`vocab_size`), so no language model", INSTEAD),
    ],
)  # fmt: skip
def test_what_a_model_is_and_what_to_use_instead(config: dict[str, Any], what: str, instead: str) -> None:
    assert other_kind(config) == (what, instead)


@pytest.mark.parametrize(
    ("config", "because"),
    [
        ({"model_type": "llama"}, "a decoder, whose vocabulary Transformers knows"),
        (
            {"model_type": "gemma3", "text_config": {}, "vision_config": {}},
            "it loads as a decoder of text, images aside",
        ),
        ({"model_type": "bert", "vocab_size": 9, "is_decoder": True}, "BERT as a decoder"),
        ({"model_type": "new", "vocab_size": 9}, "nothing says that it is no decoder: loading it shows"),
        ({"model_type": "chatglm", "auto_map": REMOTE}, "its own code makes a decoder of it"),
        ({}, "a broken file: loading it says what is wrong"),
    ],
)
def test_what_is_or_may_be_a_decoder_is_left_alone(config: dict[str, Any], because: str) -> None:
    assert other_kind(config) is None, because


def test_the_message(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bert").mkdir()
    Path("bert/config.json").write_text('{"model_type": "bert", "vocab_size": 500}')
    assert main(["resolve", "model=hub", "model.path=bert"]) == 2
    assert capsys.readouterr().err == (
        "error: no plan satisfies this request\n\n"
        "  you chose `model.path=bert` (command line)\n"
        "  `model.path.decoder`: `bert` is a `bert` model, an encoder, whose tokens see\n"
        "    the ones that they should predict: give a decoder of text, one that\n"
        "    `AutoModelForCausalLM` loads, such as `Qwen/Qwen3-0.6B`, because training\n"
        "    predicts each token from those before it\n\n"
        "  no single change repairs this\n"
    )


def configured(kind: str) -> dict[str, Any] | None:
    """What Transformers writes of a model of this type; None where the type cannot be made without more."""
    from transformers import CONFIG_MAPPING

    try:
        found: dict[str, Any] = json.loads(CONFIG_MAPPING[kind]().to_json_string(use_diff=True))
    except Exception:
        return None
    return found


@pytest.mark.torch
def test_every_architecture_of_transformers() -> None:
    """Decoders pass; what Transformers has no causal head for is refused by its configuration, or when it is loaded; what
    it gives a head that is not causal, or half a model, is refused by its configuration."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    told = {kind: other_kind(config) for kind in CONFIG_MAPPING if (config := configured(kind)) is not None}
    assert not [kind for kind in MODEL_TYPES if told.get(kind)]
    loadable = [
        kind for kind in told if kind not in MODEL_TYPES and CONFIG_MAPPING[kind] in MODEL_FOR_CAUSAL_LM_MAPPING
    ]
    assert [kind for kind in loadable if told[kind] is None] == ["trocr"]  # the decoder half alone, which is one
    assert sum(found is not None for found in told.values()) > 500


@pytest.mark.torch
@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"model_type": "bert"},
            "`{}` is a `bert` model, an encoder, whose tokens see the ones that they should predict",
        ),
        (
            {"model_type": "qwen3_vl_text", "vocab_size": 9},
            "`{}` is a `qwen3_vl_text` model, which Transformers has no causal language model of",
        ),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_a_plan_was_made_for_by_hand_is_refused_when_it_is_loaded(
    config: dict[str, Any], said: str, device: str, tmp_path: Path
) -> None:
    from memcfg_model.hooks import memcfg_load_model

    from memcfg import Decision, Plan

    (tmp_path / "config.json").write_text(json.dumps(config))
    values = {
        "model.source": "hub",
        "model.path": str(tmp_path),
        "model.dtype": "float32",
        "model.trust_remote_code": False,
    }
    plan = Plan({key: Decision(value, "you") for key, value in values.items()})
    with pytest.raises(RunError, match=re.escape(said.format(tmp_path))) as caught:
        memcfg_load_model(plan, device)
    assert caught.value.problems[0].fix == INSTEAD
