"""The options of every run: documented, with true defaults, types and ranges."""

import re

import pytest

from memcfg import UNSET, RequestError
from memcfg.core import plugin
from memcfg.core.cards import CARDS
from memcfg.registry import load
from memcfg.solver import Choice, Request

OPTIONS = {option.key: option for option in plugin.options}
FACTS = {"device.type": "cpu", "device.capability": 0, "world.size": 1}


def plan(**choices):
    chosen = {key.replace("__", "."): Choice(value, "command line") for key, value in choices.items()}
    return load(discover=False).plan(Request(chosen, FACTS))


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("run.dir", None),
        ("run.steps", 80),
        ("run.batch_size", 2),
        ("run.accumulation", 1),
        ("run.seed", 0),
        ("run.log_steps", 10),
        ("run.save_steps", None),
        ("run.eval_steps", None),
        ("run.resume", None),
        ("budget.bytes", None),
    ],
)
def test_a_default(key, default):
    assert plan().get(key, UNSET) == default


@pytest.mark.parametrize(
    ("choice", "because"),
    [
        ({"run__steps": 0}, "a run takes a step"),
        ({"run__steps": "many"}, "a number"),
        ({"run__steps": None}, "a run ends"),
        ({"run__batch_size": 0}, "a micro-batch has a row"),
        ({"run__accumulation": True}, "true is no number"),
        ({"run__learning_rate": -1e-5}, "never uphill"),
        ({"run__scheduler": "zigzag"}, "not on the menu"),
        ({"run__save_steps": 0}, "null is how to say never"),
        ({"budget__bytes": 0}, "nothing runs in nothing"),
    ],
)
def test_a_senseless_value_is_refused(choice, because):
    with pytest.raises(RequestError) as error:
        plan(**choice)
    assert next(iter(choice)).replace("__", ".") in str(error.value), because


def test_whole_numbers_are_learning_rates_too():
    assert plan(run__learning_rate=1)["run.learning_rate"] == 1


def test_facts_are_kept():
    assert plan()["device.type"] == "cpu"
    assert plan()["world.size"] == 1


@pytest.mark.parametrize("key", OPTIONS)
def test_an_option_is_documented_in_one_lower_case_line(key):
    doc = OPTIONS[key].doc
    assert re.fullmatch(r"(?!.*\.$)(?:[a-z]|CUDA).{8,100}", doc), doc


def test_cards_have_plausible_numbers():
    for name, card in CARDS.items():
        assert name == name.lower()
        assert 50 <= card.capability <= 130, name
        assert 8 << 30 <= card.memory <= 300 << 30, name
