"""Requests that are malformed: every problem at once, each with the key, what is wrong, and what to write."""

from __future__ import annotations

import pytest

from memcfg import Bool, Enum, Fact, Force, Int, RemovedKey, RenameKey, RenameValue, RequestError, Setting
from memcfg.errors import Note
from memcfg.solver import Choice, Request, Theory, resolve

WHY = {"because": "of reasons"}
shape = Enum("row.shape", ("round", "square", "none"), doc="the shape of a row")
lid = Bool("row.lid", doc="whether a row has a lid")
hatch = Bool("row.hatch", doc="whether it opens", nullable=True)
size = Int("row.size", doc="how large", unit="tokens", minimum=1, maximum=4096, nullable=True)
layout = Enum("batch.layout", ("padded", "rows"), doc="how rows are laid out", role="derived")
free = Enum("batch.free", ("a", "b"), doc="derived by nobody", role="derived")
host = Fact("host.type", probe="m:f", values=("cpu", "cuda"), doc="what computes")
cards = Fact("host.cards", probe="m:f", values=None, minimum=0, doc="how many")
rate = Setting("run.rate", float, minimum=0, doc="how fast")
steps = Setting("run.steps", int, minimum=1, doc="how long")
path = Setting("run.path", str, nullable=True, doc="where")
token = Setting("hub.token", int, secret=True, doc="a password")
tags = Setting("run.tags", (list, str), doc="labels")
kind = Setting("run.kind", str, values=("linear", "cosine"), doc="a schedule")
RULES = [
    Force(layout, "rows", when=lid.on, id="p.rows", **WHY),
    RenameKey("row.form", shape, id="p.form", because="shape is the word"),
    RenameKey("row.figure", "row.form", id="p.figure", because="form was the word"),
    RenameValue(shape, "circle", "round", id="p.circle", because="round is shorter"),
    RenameValue(kind, "line", "linear", id="p.line", because="it is an adjective"),
    RemovedKey("row.top", advice="use `row.lid`", id="p.top", because="rows have no top"),
    RenameKey("row.roof", "row.top", id="p.roof", because="top was the word"),
]
OPTIONS = [shape, lid, hatch, size, layout, free, host, cards, rate, steps, path, token, tags, kind]
THEORY = Theory.build(OPTIONS, RULES)


def refusal(choices, facts=None, assumed=()):
    request = Request({k: Choice(v, "command line") for k, v in choices.items()}, facts or {}, assumed)
    with pytest.raises(RequestError) as raised:
        resolve(THEORY, request)
    return raised.value.problems


@pytest.mark.parametrize(
    ("key", "value", "text", "nearest", "fix"),
    [
        ("row.shap", "round", "no such option", ("row.shape",), None),
        ("shape", "round", "no such option", ("row.shape",), None),
        ("size", 3, "no such option", ("row.size",), None),
        ("something.else", 3, "no such option", (), None),
        ("row.shape", "rund", "`rund` is not one of `round`, `square`, `none`", ("round",), None),
        ("run.rate", float("inf"), "`inf` is not a finite number", (), None),
        ("run.rate", float("nan"), "`nan` is not a finite number", (), None),
        ("run.tags", ["a", [float("inf")]], "its `[1][0]` is `inf`, not a finite number", (), None),
        ("row.shape", True, "`true` is not one of `round`, `square`, `none`", (), None),
        ("row.shape", None, "cannot be `null`", (), "write `row.shape=none`"),
        ("row.lid", None, "cannot be `null`", (), "leave it out: `~row.lid`"),
        ("row.lid", "yes", "`yes` is neither `true` nor `false`", (), "write `row.lid=true`"),
        ("row.lid", 0, "`0` is neither `true` nor `false`", (), "write `row.lid=false`"),
        ("row.lid", "perhaps", "`perhaps` is neither `true` nor `false`", (), None),
        ("row.hatch", "None", "the text `None` is not null", (), "write `row.hatch=null`"),
        ("row.size", "None", "the text `None` is not null", (), "write `row.size=null`"),
        ("run.path", "null", "the text `null` is not null", (), "write `run.path=null`"),
        ("row.size", "512", "is the text `512`, not an integer", (), "write the number without quotes: `row.size=512`"),
        ("row.size", "many", "is the text `many`, not an integer", (), None),
        ("row.size", 512.0, "`512.0` is not an integer", (), "write `row.size=512`"),
        ("row.size", 0.5, "`0.5` is not an integer", (), None),
        ("row.size", True, "`true` is not an integer", (), None),
        ("row.size", 0, "`0` is too small: at least 1 (tokens)", (), None),
        ("row.size", 5000, "`5000` is too large: at most 4096 (tokens)", (), None),
        ("run.rate", "0.5", "`0.5` is not a number", (), "write the number without quotes: `run.rate=0.5`"),
        ("run.rate", "fast", "`fast` is not a number", (), None),
        ("run.rate", True, "`true` is not a number", (), None),
        ("run.rate", -1, "`-1.0` is too small: at least 0", (), None),
        ("run.steps", 1e3, "`1000.0` is not an integer", (), "write `run.steps=1000`"),
        ("run.path", 7, "`7` is not text", (), "quote it: `run.path=\"'7'\"`"),
        ("run.tags", {"a": 1}, "`{'a': 1}` is not a list or text", (), None),
        ("run.kind", True, "`true` is not one of `linear`, `cosine`", (), None),
        ("run.kind", "cosin", "`cosin` is not one of `linear`, `cosine`", ("cosine",), None),
        ("hub.token", "hunter2", "`***` is not an integer", (), None),
        ("hub.token", "1234", "`***` is not an integer", (), None),
        ("row.top", True, "was removed: rows have no top", (), "use `row.lid`"),
        ("row.roof", True, "was removed: rows have no top", (), "use `row.lid`"),
        ("batch.layout", "rows", "is derived by rules and cannot be set", (), "it follows from `p.rows`"),
        ("batch.free", "a", "is derived by rules and cannot be set", (), None),
        ("host.type", "cpu", "is a fact of the host, not an option", (), "to assume it, write `assume.host.type=...`"),
    ],
)
def test_a_choice_is_refused(key, value, text, nearest, fix):
    (problem,) = refusal({key: value})
    assert (problem.text, problem.nearest, problem.fix) == (text, nearest, fix)
    assert problem.key == ("row.top" if key == "row.roof" else key)


@pytest.mark.parametrize(
    ("facts", "assumed", "key", "text", "nearest"),
    [
        ({"host.type": "cude"}, ("host.type",), "assume.host.type", "`cude` is not one of `cpu`, `cuda`", ("cuda",)),
        ({"host.typ": "cuda"}, ("host.typ",), "assume.host.typ", "no such fact", ("assume.host.type",)),
        ({"host.cards": -1}, ("host.cards",), "assume.host.cards", "`-1` is too small: at least 0", ()),
        (
            {"host.cards": "two"},
            (),
            "host.cards",
            "its probe gave a wrong value: is the text `two`, not an integer",
            (),
        ),
        ({"row.lid": True}, ("row.lid",), "assume.row.lid", "no such fact", ()),
    ],
)
def test_a_fact_is_refused(facts, assumed, key, text, nearest):
    (problem,) = refusal({}, facts, assumed)
    assert (problem.key, problem.text, problem.nearest) == (key, text, nearest)


def test_everything_wrong_is_said_at_once_in_order():
    problems = refusal({"row.size": "512", "row.lidd": True, "row.shape": "rund"}, {"host.cards": -1})
    assert [p.key for p in problems] == ["row.lidd", "row.shape", "row.size", "host.cards"]
    assert str(RequestError(*problems)) == (
        "`row.lidd`: no such option; did you mean `row.lid`?\n"
        "`row.shape`: `rund` is not one of `round`, `square`, `none`; did you mean `round`?\n"
        "`row.size`: is the text `512`, not an integer\n"
        "  write the number without quotes: `row.size=512`\n"
        "`host.cards`: its probe gave a wrong value: `-1` is too small: at least 0"
    )


def test_renames_are_followed_and_noted():
    before = Note("note", "compose", "a layer won")
    found = resolve(THEORY, Request({"row.figure": Choice("circle", "a.yaml")}, notes=(before,)))
    decision = found.decisions["row.shape"]
    assert (decision.value, decision.kind, decision.origin, decision.requested) == ("round", "you", "a.yaml", "circle")
    note = "`row.figure=circle` is now `row.shape=round`: form was the word; shape is the word; round is shorter"
    assert [n.text for n in found.notes] == ["a layer won", note]
    assert resolve(THEORY, Request({"run.kind": Choice("line", "f")})).decisions["run.kind"].value == "linear"


def test_an_old_and_a_new_name_may_agree():
    both = {"row.form": Choice("circle", "f"), "row.shape": Choice("round", "f")}
    assert resolve(THEORY, Request(both)).decisions["row.shape"].value == "round"


def test_the_command_line_wins_over_a_file_under_another_name():
    for first, second in (("row.form", "row.shape"), ("row.shape", "row.form")):
        both = {first: Choice("square", "command line"), second: Choice("round", "a.yaml")}
        assert resolve(THEORY, Request(both)).decisions["row.shape"].value == "square"


def test_an_old_and_a_new_name_that_differ_are_refused():
    (problem,) = refusal({"row.form": "square", "row.shape": "round"})
    assert problem.text == "is set twice under two names: `square` and `round`"
    assert problem.fix == "keep one of them: `~row.form`"
