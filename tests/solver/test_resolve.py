"""What requests resolve to: given these rules and these choices, this value, because of this."""

from __future__ import annotations

import pytest

from memcfg import (
    PENDING,
    UNSET,
    Advise,
    Bool,
    Check,
    ConflictError,
    Default,
    Enum,
    Fact,
    Fallback,
    Forbid,
    Force,
    Ignored,
    Int,
    RenameKey,
    RenameValue,
    Require,
    RuleError,
    Setting,
    key,
)
from memcfg.solver import Choice, Request, Theory, resolve, why_not

shape = Enum("row.shape", ("round", "square", "flat"), doc="the shape of a row")
lid = Bool("row.lid", doc="whether a row has a lid")
size = Int("row.size", doc="how large a row is", unit="tokens", minimum=1, nullable=True)
layout = Enum("batch.layout", ("padded", "rows"), doc="how rows are laid out", role="derived")
host = Fact("host.type", probe="m:f", values=("cpu", "cuda"), doc="what computes")
cards = Fact("host.cards", probe="m:f", values=None, minimum=0, doc="how many")
rate = Setting("run.rate", float, default=0.5, doc="how fast")
name = Setting("run.name", str, nullable=True, doc="what it is called")
OPTIONS = [shape, lid, size, layout, host, cards, rate, name]

BASE = [
    Default(shape, "round", "square", id="row.shape.default", because="round rows roll"),
    Default(lid, False, id="row.lid.default", because="lids are heavy"),
    Default(size, 1024, id="row.size.default", because="it fits"),
    Default(layout, "padded", id="batch.layout.default", because="it always works"),
]
CPU = {"host.type": "cpu", "host.cards": 0}


def decide(rules, choices=None, facts=CPU, options=OPTIONS):
    theory = Theory.build(options, [*BASE, *rules])
    return resolve(theory, Request({k: Choice(v, "command line") for k, v in (choices or {}).items()}, facts))


@pytest.mark.parametrize(
    ("rules", "choices", "option", "value", "kind", "rule"),
    [
        pytest.param([], {}, "row.shape", "round", "default", "row.shape.default", id="a default"),
        pytest.param([], {"row.shape": "flat"}, "row.shape", "flat", "you", None, id="a choice"),
        pytest.param([], {}, "host.type", "cpu", "fact", None, id="a fact"),
        pytest.param([], {}, "run.rate", 0.5, "default", None, id="a setting's own default"),
        pytest.param([], {}, "run.name", UNSET, "unset", None, id="a setting without default"),
        pytest.param([], {"run.rate": 1}, "run.rate", 1.0, "you", None, id="an integer where a float is wanted"),
        pytest.param([], {"row.size": None}, "row.size", None, "you", None, id="null is a choice"),
        pytest.param([], {"row.size": 77}, "row.size", 77, "you", None, id="a number that no rule names"),
        pytest.param(
            [Force(lid, True, id="p.lid.forced", because="rain", when=shape == "flat")],
            {"row.shape": "flat"}, "row.lid", True, "forced", "p.lid.forced", id="a force",
        ),
        pytest.param(
            [Force(lid, True, id="p.lid.forced", because="rain", when=shape == "flat")],
            {}, "row.lid", False, "default", "row.lid.default", id="a force that does not fire",
        ),
        pytest.param(
            [Force(lid, True, id="p.lid.forced", because="rain", when=shape == "flat", on_user="override")],
            {"row.shape": "flat", "row.lid": False}, "row.lid", True, "overridden", "p.lid.forced", id="an override",
        ),
        pytest.param(
            [Force(lid, True, id="p.lid.forced", because="rain", when=shape == "flat", on_user="override")],
            {"row.shape": "flat", "row.lid": True}, "row.lid", True, "you", None, id="an override that agrees",
        ),
        pytest.param(
            [Fallback(shape, "flat", to="square", when=host == "cpu", id="p.flat.cpu", because="no kernel")],
            {"row.shape": "flat"}, "row.shape", "square", "fallback", "p.flat.cpu", id="a fallback",
        ),
        pytest.param(
            [Forbid(shape == "round", id="p.no.round", because="corners are needed")],
            {}, "row.shape", "square", "yielded", "row.shape.default", id="a default that yields",
        ),
        pytest.param(
            [Default(size, 64, when=lid.on, id="p.size.lid", because="lids are small")],
            {"row.lid": True}, "row.size", 64, "default", "p.size.lid", id="the more specific default",
        ),
        pytest.param(
            [Default(size, 64, when=lid.on, id="p.size.lid", because="lids are small"),
             Default(size, 32, when=lid.on & (shape == "flat"), id="p.size.flat", because="flat ones smaller")],
            {"row.lid": True, "row.shape": "flat"}, "row.size", 32, "default", "p.size.flat", id="the most specific",
        ),
        pytest.param(
            [Default(size, 64, when=lid.on, id="p.size.lid", because="lids", supersedes=["p.size.flat"]),
             Default(size, 32, when=shape == "flat", id="p.size.flat", because="flat")],
            {"row.lid": True, "row.shape": "flat"}, "row.size", 64, "default", "p.size.lid", id="supersedes",
        ),
        pytest.param(
            [Default(layout, "rows", when=size <= 512, id="p.rows", because="short rows")],
            {"row.size": 512}, "batch.layout", "rows", "default", "p.rows", id="a number at the bound",
        ),
        pytest.param(
            [Default(layout, "rows", when=size <= 512, id="p.rows", because="short rows")],
            {"row.size": 513}, "batch.layout", "padded", "default", "batch.layout.default", id="a number past the bound",
        ),
        pytest.param(
            [Default(layout, "rows", when=size <= 512, id="p.rows", because="short rows")],
            {"row.size": None}, "batch.layout", "padded", "default", "batch.layout.default", id="null has no size",
        ),
        pytest.param(
            [Default(rate, 0.1, when=lid.on, id="p.rate", because="slow")],
            {"row.lid": True}, "run.rate", 0.1, "default", "p.rate", id="a setting's conditional default",
        ),
        pytest.param(
            [Default(rate, 2, id="p.rate", because="fast")], {}, "run.rate", 2.0, "default", "p.rate",
            id="a default rule goes before the setting's own",
        ),
        pytest.param(
            [Default(layout, "rows", when=cards >= 2, id="p.rows", because="many")],
            {}, "batch.layout", "padded", "default", "batch.layout.default", id="a number that was probed",
        ),
        pytest.param(
            [RenameValue(shape, "circle", "round", id="p.circle", because="round is the word")],
            {"row.shape": "circle"}, "row.shape", "round", "you", "p.circle", id="a renamed value",
        ),
        pytest.param(
            [RenameKey("row.form", shape, id="p.form", because="shape is the word"),
             RenameValue(shape, "circle", "disc", id="p.circle", because="disc is the word"),
             RenameValue(shape, "disc", "round", id="p.disc", because="round is the word")],
            {"row.form": "circle"}, "row.shape", "round", "you", "p.disc", id="a chain of renames",
        ),
    ],
)  # fmt: skip
def test_a_request_resolves(rules, choices, option, value, kind, rule):
    decision = decide(rules, choices).decisions[option]
    assert (decision.value, type(decision.value), decision.kind, decision.rule) == (value, type(value), kind, rule)


def test_a_decision_says_why_and_from_what():
    forced = Force(
        lid, True, id="p.lid.forced", because="rain", when=(shape == "flat") & (host == "cpu"), on_user="override"
    )
    decisions = decide([forced], {"row.shape": "flat", "row.lid": False}).decisions
    lidded, shaped = decisions["row.lid"], decisions["row.shape"]
    assert (lidded.because, lidded.antecedents) == ("rain", ("host.type", "row.shape"))
    assert (lidded.requested, lidded.origin, lidded.role) == (False, "command line", "choice")
    assert (shaped.requested, shaped.origin) == ("flat", "command line")
    assert decisions["row.size"].requested is UNSET
    assert decisions["batch.layout"].role == "derived"


def test_a_yielded_default_says_what_was_in_its_way():
    rules = [Forbid((shape == "round") & (host == "cpu"), id="p.no.round", because="a processor has corners")]
    decision = decide(rules).decisions["row.shape"]
    assert decision.because == "`round` is not possible here: a processor has corners"
    assert decision.antecedents == ("host.type",)


def test_an_earlier_option_keeps_its_first_proposal_where_a_later_one_can_yield():
    rules = [
        Default(key("a.first"), "x", "y", id="a.first.default", because="x"),
        Default(key("a.second"), "x", "y", id="a.second.default", because="x"),
        Forbid((key("a.first") == "x") & (key("a.second") == "x"), id="a.not.both", because="not both"),
    ]
    options = [Enum("a.second", ("x", "y"), doc="b"), Enum("a.first", ("x", "y"), doc="a")]
    found = resolve(Theory.build(options, rules), Request())
    assert {k: d.value for k, d in found.decisions.items()} == {"a.first": "x", "a.second": "y"}


def test_what_a_rule_overrides_leaves_a_warning_and_what_it_renames_a_note():
    rules = [
        Force(lid, True, id="p.lid.forced", because="rain", when=shape == "round", on_user="override"),
        RenameValue(shape, "circle", "round", id="p.circle", because="round is the word"),
    ]
    notes = decide(rules, {"row.shape": "circle", "row.lid": False}).notes
    assert [(n.level, n.rule, n.text) for n in notes] == [
        ("deprecation", "p.circle", "`row.shape=circle` is now `row.shape=round`: round is the word"),
        ("warning", "p.lid.forced", "`row.lid=false` (command line) is answered by `row.lid=true`, because rain"),
    ]


def test_advice_names_final_values():
    rules = [
        Advise("rows of {row.size} and {run.name}", when=(shape == "round") & lid.off, id="p.advice", level="warning")
    ]
    (note,) = decide(rules).notes
    assert (note.level, note.rule, note.text) == ("warning", "p.advice", "rows of 1024 and unset")
    assert decide(rules, {"row.lid": True}).notes == ()


@pytest.mark.parametrize("facts", [{"host.cards": 0}, {"host.cards": 0, "host.type": PENDING}])
def test_rules_that_read_an_unknown_fact_wait(facts):
    rules = [
        Force(lid, True, id="p.lid.cpu", because="rain", when=host == "cpu"),
        Forbid((host == "cuda") & (shape == "round"), id="p.cuda.round", because="corners"),
        Force(size, 64, id="p.size.cards", because="few", when=cards == 0),
    ]
    found = decide(rules, facts=facts)
    assert [(p.fact, p.rules) for p in found.pending] == [("host.type", ("p.cuda.round", "p.lid.cpu"))]
    assert found.decisions["host.type"].value is UNSET
    assert found.decisions["row.lid"].value is False
    assert found.decisions["row.size"].value == 64


def test_what_was_decided_stands_when_a_fact_becomes_known():
    rules = [
        Default(size, 64, when=host == "cuda", id="p.size.cuda", because="cards are small"),
        Forbid((host == "cuda") & (shape == "round"), id="p.cuda.round", because="corners"),
    ]
    theory = Theory.build(OPTIONS, [*BASE, *rules])
    first = resolve(theory, Request({"row.shape": Choice("flat", "command line")}, {"host.cards": 0}))
    facts = {"host.cards": 0, "host.type": "cuda"}
    then = resolve(theory, Request({"row.shape": Choice("flat", "command line")}, facts, decided=first.decisions))
    assert then.decisions["row.size"] == first.decisions["row.size"]
    assert then.pending == ()
    round_ = resolve(theory, Request(facts={"host.cards": 0}))
    with pytest.raises(ConflictError) as raised:
        resolve(theory, Request(facts=facts, decided=round_.decisions))
    assert str(raised.value) == (
        "`host.type` is `cuda` on this host\n"
        "`row.shape=round` was decided before everything was known\n"
        "`p.cuda.round` forbids `host.type=cuda and row.shape=round`, because corners"
    )
    assert raised.value.repairs == (("row.shape=square",), ("row.shape=flat",))


@pytest.mark.parametrize(
    ("when", "choices", "read"),
    [
        (host == "cpu", {}, ("host.type",)),
        ((host == "cpu") & lid.on, {}, ()),
        ((host == "cpu") & lid.on, {"row.lid": True}, ("host.type",)),
        ((host == "cpu") & (cards >= 1), {}, ("host.cards", "host.type")),
        ((host == "cpu") | lid.off, {}, ()),
    ],
)
def test_a_fact_is_read_where_a_rule_is_not_settled_without_it(when, choices, read):
    found = decide([Force(size, 64, id="p.size.small", because="small", when=when)], choices)
    assert found.fact_reads == read


def test_a_requirement_reads_a_fact_only_where_it_speaks():
    rules = [Require(host == "cpu", when=shape == "flat", id="p.flat.cpu", because="cards roll")]
    assert decide(rules).fact_reads == ()
    assert decide(rules, {"row.shape": "flat"}).fact_reads == ("host.type",)


def test_advice_depends_on_no_fact_and_a_check_on_what_it_is_handed():
    advise = Advise("few cards", when=cards == 0, id="p.few")
    check = Check([size, cards], lambda values: None, when=lid.off, id="p.check", because="x")
    assert decide([advise]).fact_reads == ()
    assert decide([check]).fact_reads == ("host.cards",)
    assert decide([check], {"row.lid": True}).fact_reads == ()


def test_a_fact_behind_a_yield_is_read():
    rules = [Forbid((shape == "round") & (host == "cpu"), id="p.no.round", because="corners")]
    assert decide(rules).fact_reads == ("host.type",)


def test_a_check_reads_final_values_and_waits_for_what_is_unset():
    seen = []

    def test(values):
        seen.append(dict(values))
        return

    rules = [
        Check([size, rate], test, id="p.check.both", because="x"),
        Check([name], test, id="p.check.name", because="x"),
    ]
    decide(rules, {"row.size": 12})
    assert seen == [{"row.size": 12, "run.rate": 0.5}]


def test_a_check_that_raises_is_an_error_of_its_author():
    rules = [Check([size], lambda values: values["nope"], id="p.check.broken", because="x")]
    with pytest.raises(RuleError, match=r"test_resolve\.py:\d+`: rule `p.check.broken`: its test raised KeyError"):
        decide(rules)


def test_true_and_one_null_and_unset_stay_apart():
    options = [
        Bool("a.flag", doc="f", nullable=True),
        Int("a.number", doc="n", minimum=0),
        Enum("a.seen", ("flag", "null", "unset", "one"), doc="s"),
    ]
    flag, number, seen = options
    rules = [
        Default(seen, "flag", when=flag.on, id="a.on", because="on"), Default(seen, "null", when=flag.null, id="a.null", because="null"),
        Default(seen, "unset", when=flag.unset & number.unset, id="a.unset", because="unset"),
        Default(seen, "one", when=flag.unset & (number == 1), id="a.one", because="one"),
    ]  # fmt: skip
    theory = Theory.build(options, rules)
    for choices, expected in (
        ({"a.flag": True}, "flag"),
        ({"a.flag": None}, "null"),
        ({}, "unset"),
        ({"a.number": 1}, "one"),
    ):
        found = resolve(theory, Request({k: Choice(v, "f") for k, v in choices.items()}))
        assert found.decisions["a.seen"].value == expected


def test_an_open_fact_may_have_a_value_that_no_rule_names():
    model = Fact("model.type", probe="m:f", values=("llama",), open=True, doc="the architecture")
    rules = [
        Force(lid, True, id="p.llama", because="llama", when=model == "llama"),
        Forbid((model == "gpt") & (shape == "round"), id="p.gpt", because="gpt"),
    ]
    for value, lidded in (("llama", True), ("mamba", False)):
        found = decide(rules, facts={**CPU, "model.type": value}, options=[*OPTIONS, model])
        assert found.decisions["model.type"].value == value
        assert found.decisions["row.lid"].value is lidded


def test_a_choice_that_nothing_reads_is_no_plan_even_where_a_default_could_yield():
    rules = [Ignored(lid, when=shape == "round", id="p.lid.ignored", because="round rows have none")]
    with pytest.raises(ConflictError) as raised:
        decide(rules, {"row.lid": True})
    assert raised.value.conflicts[0].rules == ("row.shape.default", "p.lid.ignored")
    assert set(raised.value.repairs) == {("row.shape=square",), ("row.shape=flat",), ("~row.lid",)}


def test_a_value_that_says_what_holds_anyway_is_no_error():
    ignored = Ignored(lid, when=shape == "round", id="p.lid.ignored", because="none", except_values=(False,))
    assert decide([ignored], {"row.lid": False}).decisions["row.lid"].kind == "you"


def test_why_not_asks_with_a_choice_that_no_rule_may_answer():
    forced = Force(lid, True, id="p.lid.forced", because="rain", when=shape == "flat", on_user="override")
    rows = Force(layout, "rows", id="p.rows", because="lids stack", when=lid.on)
    theory = Theory.build(OPTIONS, [*BASE, forced, rows])
    flat = Request({"row.shape": Choice("flat", "command line")}, CPU)
    assert why_not(theory, flat, "row.size", 7) is None
    assert str(why_not(theory, flat, "row.lid", False)) == (
        "suppose `row.lid=false`\nyou chose `row.shape=flat` (command line)\n"
        "`p.lid.forced` sets `row.lid=true` when `row.shape=flat`, because rain"
    )
    assert str(why_not(theory, flat, "batch.layout", "padded")) == (
        "suppose `batch.layout=padded`\nyou chose `row.shape=flat` (command line)\n"
        "`p.lid.forced` sets `row.lid=true` when `row.shape=flat`, because rain\n"
        "`p.rows` sets `batch.layout=rows` when `row.lid=true`, because lids stack"
    )


@pytest.mark.slow
def test_rules_that_need_too_much_search_are_an_error_that_names_them():
    holes = tuple(f"h{i}" for i in range(9))
    pigeons = [Enum(f"pigeon.n{i}", holes, doc="where it sits") for i in range(10)]
    rules = [Default(p, *holes, id=f"{p.key}.default", because="somewhere") for p in pigeons]
    for i, a in enumerate(pigeons):
        for b in pigeons[:i]:
            for hole in holes:
                rules.append(Forbid((a == hole) & (b == hole), id=f"{a.key}.{b.key[7:]}.{hole}", because="one each"))
    with pytest.raises(RuleError, match="too entangled to resolve this request; most often met: `pigeon") as raised:
        resolve(Theory.build(pigeons, rules), Request())
    assert 0 < len(raised.value.rules) <= 6


def test_require_speaks_when_its_condition_holds():
    rules = [Require(lid.on, when=shape == "flat", id="p.flat.lid", because="it rains in")]
    with pytest.raises(ConflictError):
        decide(rules, {"row.shape": "flat", "row.lid": False})
    assert decide(rules, {"row.lid": False}).decisions["row.shape"].value == "round"


def test_the_decision_of_a_secret_says_so():
    token = Setting("x.token", str, doc="a password", nullable=True, secret=True)
    decision = resolve(Theory.build([token], []), Request({"x.token": Choice("8fd3", "command line")})).decisions[
        "x.token"
    ]
    assert (decision.value, decision.secret) == ("8fd3", True)
