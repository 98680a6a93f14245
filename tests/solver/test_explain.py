"""Conflicts as a user reads them, whole, with every repair."""

from __future__ import annotations

import pytest

from memcfg import (
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
    RenameValue,
    Require,
    Setting,
)
from memcfg.errors import RuleError
from memcfg.solver import Choice, Request, Theory, resolve, why_not

trainer = Enum("trainer.name", ("sft", "dpo"), doc="the trainer")
packing = Enum("packing.strategy", ("bfd", "wrapped", "none"), doc="how documents share a row")
flat = Bool("flat.enabled", doc="no padding")
length = Int("cut.length", doc="the longest sequence", minimum=1, nullable=True)
side = Enum("cut.side", ("start", "end"), doc="what is kept")
attention = Enum("attention.kernel", ("fast", "plain", "slow"), doc="the attention kernel")
loss = Enum("loss.type", ("chunked", "plain"), doc="the loss")
fused = Bool("fused.enabled", doc="fused kernels")
multiple = Int("pad.multiple", doc="rounding", minimum=1, nullable=True)
layout = Enum("batch.layout", ("padded", "rows"), doc="how rows are laid out", role="derived")
device = Fact("device.type", probe="m:f", values=("cpu", "cuda"), doc="what computes")
beta = Setting("dpo.beta", float, default=0.1, doc="strength of the pull")
OPTIONS = [trainer, packing, flat, length, side, attention, loss, fused, multiple, layout, device, beta]

RULES = [
    Default(trainer, "sft", id="sft.trainer.default", because="it is the usual one"),
    Default(packing, "none", id="packing.default", because="documents are padded unless packed"),
    Default(flat, False, id="flat.default", because="it needs a kernel"),
    Default(length, 1024, id="cut.length.default", because="it fits"),
    Default(side, "start", id="cut.side.default", because="beginnings matter"),
    Default(attention, "plain", "slow", id="attention.default", because="it runs anywhere"),
    Default(loss, "chunked", id="loss.default", because="it saves memory"),
    Default(fused, False, id="fused.default", because="it is optional"),
    Default(multiple, None, id="pad.default", because="nothing is rounded"),
    Default(layout, "padded", id="layout.default", because="it always works"),
    Default(layout, "rows", when=flat.on, id="layout.rows", because="flat batches are rows"),
    Force(flat, True, when=packing == "bfd", on_user="override", id="packing.flat.forced", because="packed rows are flat"),
    Forbid((packing != "none") & length.null, id="packing.length.needed", because="a row needs a length to fill"),
    Forbid((packing != "none") & (trainer != "sft"), id="packing.trainer.sft", because="others take whole documents"),
    Forbid(flat.on & (attention == "plain"), id="attention.flat.leaks", because="documents would see each other"),
    Require(device == "cuda", when=attention == "fast", id="attention.fast.cuda", because="the kernel runs on a GPU"),
    Forbid(fused.on & (loss == "chunked"), id="fused.loss.clash", because="both replace the head", suggest=["fused.enabled=false"]),
    Ignored(side, when=packing == "wrapped", id="packing.side.unread", because="nothing is cut"),
    Ignored(beta, when=trainer == "sft", id="dpo.beta.unread", because="only DPO has one"),
    RenameValue(packing, "best-fit", "bfd", id="packing.old", because="bfd is its name"),
    Check([length, multiple], lambda v: None if not v["pad.multiple"] or not v["cut.length"] or v["cut.length"] % v["pad.multiple"] == 0
          else f"{v['cut.length']} is no multiple of {v['pad.multiple']}", id="pad.fits", because="rows are rounded up to it"),
]  # fmt: skip
THEORY = Theory.build(OPTIONS, RULES)


def failure(choices, rules=(), device="cpu", assumed=()):
    theory = Theory.build(OPTIONS, [*RULES, *rules]) if rules else THEORY
    request = Request({k: Choice(v, "command line") for k, v in choices.items()}, {"device.type": device}, assumed)
    with pytest.raises(ConflictError) as raised:
        resolve(theory, request)
    return raised.value


CASES = [
    (
        "two choices and a rule",
        {"packing.strategy": "wrapped", "cut.length": None},
        """\
you chose `cut.length=null` (command line)
you chose `packing.strategy=wrapped` (command line)
`packing.length.needed` forbids `packing.strategy!=none and cut.length=null`, because a row needs a length to fill""",
        ["cut.length=1024", "packing.strategy=none"],
    ),
    (
        "an old name is shown as it was written",
        {"packing.strategy": "best-fit", "trainer.name": "dpo"},
        """\
you chose `packing.strategy=bfd` (command line, written `packing.strategy=best-fit`)
you chose `trainer.name=dpo` (command line)
`packing.trainer.sft` forbids `packing.strategy!=none and trainer.name!=sft`, because others take whole documents""",
        ["packing.strategy=none", "trainer.name=sft"],
    ),
    (
        "a force in between",
        {"packing.strategy": "bfd", "attention.kernel": "plain"},
        """\
you chose `attention.kernel=plain` (command line)
you chose `packing.strategy=bfd` (command line)
`packing.flat.forced` sets `flat.enabled=true` when `packing.strategy=bfd`, because packed rows are flat
`attention.flat.leaks` forbids `flat.enabled=true and attention.kernel=plain`, because documents would see each other""",
        ["attention.kernel=slow", "packing.strategy=wrapped", "packing.strategy=none"],
    ),
    (
        "a fact",
        {"attention.kernel": "fast"},
        """\
you chose `attention.kernel=fast` (command line)
`device.type` is `cpu` on this host
`attention.fast.cuda` requires `device.type=cuda` when `attention.kernel=fast`, because the kernel runs on a GPU""",
        ["attention.kernel=plain", "attention.kernel=slow"],
    ),
    (
        "a default that has nothing to yield to, and a suggestion that comes first",
        {"fused.enabled": True},
        """\
you chose `fused.enabled=true` (command line)
`loss.type` defaults to `chunked` (`loss.default`), because it saves memory
`fused.loss.clash` forbids `fused.enabled=true and loss.type=chunked`, because both replace the head""",
        ["loss.type=plain", "fused.enabled=false"],
    ),
    (
        "a choice that nothing reads",
        {"packing.strategy": "wrapped", "cut.side": "end"},
        """\
you chose `cut.side=end` (command line)
you chose `packing.strategy=wrapped` (command line)
`packing.side.unread` says that nothing reads `cut.side` when `packing.strategy=wrapped`, because nothing is cut""",
        ["~cut.side", "packing.strategy=bfd", "packing.strategy=none"],
    ),
    (
        "a setting that nothing reads",
        {"dpo.beta": 0.5},
        """\
you chose `dpo.beta=0.5` (command line)
`trainer.name` defaults to `sft` (`sft.trainer.default`), because it is the usual one
`dpo.beta.unread` says that nothing reads `dpo.beta` when `trainer.name=sft`, because only DPO has one""",
        ["trainer.name=dpo", "~dpo.beta"],
    ),
    (
        "arithmetic",
        {"pad.multiple": 48},
        """\
`cut.length` is `1024`
you chose `pad.multiple=48` (command line)
`pad.fits`: 1024 is no multiple of 48, because rows are rounded up to it""",
        ["cut.length=1008", "cut.length=1056", "pad.multiple=32", "pad.multiple=64", "~pad.multiple"],
    ),
]


@pytest.mark.parametrize(("choices", "text", "repairs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_conflict_is_told_as_a_chain_with_its_repairs(choices, text, repairs):
    error = failure(choices)
    assert len(error.conflicts) == 1
    assert str(error) == text
    assert [" ".join(r) for r in error.repairs] == repairs


def test_a_conflict_names_its_options_and_rules():
    (conflict,) = failure({"packing.strategy": "bfd", "attention.kernel": "plain"}).conflicts
    assert conflict.options == ("attention.kernel", "packing.strategy", "flat.enabled")
    assert conflict.rules == ("packing.flat.forced", "attention.flat.leaks")


def test_disjoint_conflicts_are_told_together_and_repaired_together():
    error = failure({"packing.strategy": "wrapped", "cut.length": None, "fused.enabled": True, "loss.type": "chunked"})
    assert [c.rules for c in error.conflicts] == [("packing.length.needed",), ("fused.loss.clash",)]
    assert set(error.repairs) == {
        ("fused.enabled=false", "packing.strategy=none"), ("cut.length=1024", "fused.enabled=false"),
        ("loss.type=plain", "packing.strategy=none"), ("cut.length=1024", "loss.type=plain"),
    }  # fmt: skip


def test_at_most_three_conflicts_are_told():
    options = [Bool(f"p.b{i}", doc="x") for i in range(10)]
    rules = [Forbid(options[2 * i].on & options[2 * i + 1].on, id=f"p.r{i}", because="x") for i in range(5)]
    request = Request({o.key: Choice(True, "f") for o in options})
    with pytest.raises(ConflictError) as raised:
        resolve(Theory.build(options, rules), request)
    assert [c.rules for c in raised.value.conflicts] == [("p.r0",), ("p.r1",), ("p.r2",)]
    assert all(len(r) == 5 for r in raised.value.repairs)


def test_an_assumed_fact_is_told_as_assumed():
    error = failure({"attention.kernel": "fast"}, assumed=("device.type",))
    assert "you assumed `device.type=cpu`" in str(error)


def test_a_fact_that_a_choice_decides_is_told_as_the_choice_which_may_be_left_out():
    workers = Fact("work.force", probe="m:f", values=None, minimum=1, doc="who works", stated_by="work.wanted")
    wanted = Setting("work.wanted", int, doc="who is to work", default=1)
    rule = Forbid(fused.on & (workers >= 2), id="work.fused.alone", because="the kernel serves one")
    theory = Theory.build([*OPTIONS, workers, wanted], [*RULES, rule])
    choices = {"fused.enabled": True, "loss.type": "plain", "work.wanted": 3}
    request = Request(
        {key: Choice(value, "command line") for key, value in choices.items()},
        {"device.type": "cpu", "work.force": 3},
        stated={"work.force": ("work.wanted", 1)},
    )
    with pytest.raises(ConflictError) as raised:
        resolve(theory, request)
    assert str(raised.value).splitlines() == [
        "you chose `fused.enabled=true` (command line)",
        "you chose `work.wanted=3` (command line), which makes `work.force` `3`",
        "`work.fused.alone` forbids `fused.enabled=true and work.force>=2`, because the kernel serves one",
    ]
    assert raised.value.conflicts[0].options == ("fused.enabled", "work.wanted")
    assert [" ".join(r) for r in raised.value.repairs] == ["fused.enabled=false", "~work.wanted"]


def test_facts_and_rules_alone_leave_nothing_to_repair():
    rules = [Forbid(device == "cpu", id="host.gpu.needed", because="this is for GPUs")]
    error = failure({"packing.strategy": "bfd"}, rules)
    assert str(error).splitlines() == [
        "`device.type` is `cpu` on this host", "`host.gpu.needed` forbids `device.type=cpu`, because this is for GPUs",
    ]  # fmt: skip
    assert error.repairs == ()


def test_a_repair_does_not_work_by_ignoring_a_choice():
    fallback = Fallback(flat, True, to=False, when=trainer == "dpo", id="dpo.flat.fallback", because="DPO pads")
    error = failure({"flat.enabled": True, "attention.kernel": "plain"}, [fallback])
    assert [" ".join(r) for r in error.repairs] == ["attention.kernel=slow", "flat.enabled=false"]


def test_an_override_that_the_request_brings_about_itself_is_not_held_against_a_repair():
    error = failure({"packing.strategy": "bfd", "flat.enabled": False, "cut.length": None})
    assert [" ".join(r) for r in error.repairs] == ["cut.length=1024", "packing.strategy=none"]


def test_what_makes_it_another_run_is_offered_last_where_the_user_chose_it():
    """Alone `a.trainer` would come before `b.mode` by its name, and before two changes as one."""
    trainer = Enum("a.trainer", ("sft", "dpo"), doc="the trainer", pivotal=True)
    mode, more = Bool("b.mode", doc="a technique"), Bool("c.more", doc="another")
    rules = [
        Default(trainer, "sft", id="a.default", because="it is usual"),
        Forbid((trainer == "dpo") & mode.on, id="b.sft", because="only SFT has it"),
        Forbid((trainer == "dpo") & more.on, id="c.sft", because="only SFT has it"),
    ]
    theory = Theory.build([trainer, mode, more], rules)

    def offered(**choices):
        request = Request({key.replace("_", "."): Choice(value, "f") for key, value in choices.items()})
        with pytest.raises(ConflictError) as raised:
            resolve(theory, request)
        return [" ".join(repair) for repair in raised.value.repairs]

    assert offered(a_trainer="dpo", b_mode=True) == ["b.mode=false", "~b.mode", "a.trainer=sft"]
    assert offered(a_trainer="dpo", b_mode=True, c_more=True)[-1] == "a.trainer=sft"


def test_numbers_are_repaired_to_the_nearest_on_either_side():
    rules = [Forbid((length > 512) & (length < 4096) & fused.on, id="p.window", because="the kernel has a gap")]
    error = failure({"fused.enabled": True, "loss.type": "plain", "cut.length": 2000}, rules)
    assert [" ".join(r) for r in error.repairs] == [
        "cut.length=512", "cut.length=4096", "cut.length=null", "fused.enabled=false",
    ]  # fmt: skip


def test_a_number_without_a_neighbour_gets_one_that_works():
    options = [Int("p.size", doc="x", minimum=1), Bool("p.on", doc="x")]
    size, on = options
    rules = [Require(size >= 3, when=on.on, id="p.size.needed", because="three at least")]
    request = Request({"p.on": Choice(True, "f")})
    with pytest.raises(ConflictError) as raised:
        resolve(Theory.build(options, rules), request)
    assert str(raised.value) == (
        "you chose `p.on=true` (f)\nnothing sets `p.size`\n"
        "`p.size.needed` requires `p.size>=3` when `p.on=true`, because three at least"
    )
    assert raised.value.repairs == (("p.size=3",), ("p.on=false",), ("~p.on",))


def test_what_nothing_sets_is_told_in_one_line():
    options = [Bool(f"p.{name}", doc="x") for name in ("on", "one", "two", "three")]
    on, *others = options
    rules = [
        Require(others[0].on | others[1].on | others[2].on, when=on.on, id="p.any", because="one of them is needed")
    ]
    with pytest.raises(ConflictError) as raised:
        resolve(Theory.build(options, rules), Request({"p.on": Choice(True, "f")}))
    assert str(raised.value) == (
        "you chose `p.on=true` (f)\nnothing sets `p.one`, `p.three` or `p.two`\n"
        "`p.any` requires `(p.one=true or p.two=true) or p.three=true` when `p.on=true`, because one of them is needed"
    )


def test_a_failed_check_is_repaired_by_what_made_it_apply():
    check = Check([beta], lambda v: None if v["dpo.beta"] < 0.2 else "it is too strong", when=fused.on & (trainer == "dpo"),
                  id="fused.beta", because="the kernel rounds it")  # fmt: skip
    choices = {"dpo.beta": 0.5, "fused.enabled": True, "trainer.name": "dpo", "loss.type": "plain"}
    error = failure(choices, [check])
    assert str(error) == (
        "you chose `dpo.beta=0.5` (command line)\n`fused.beta`: it is too strong, because the kernel rounds it"
    )
    assert [" ".join(r) for r in error.repairs] == ["~dpo.beta", "fused.enabled=false"]


def suggested() -> list[str]:
    """The repairs of a request in which nothing is named, and a switch that is off."""
    named = Setting("p.named", list, default=[], doc="x")
    share = Setting("p.share", float, default=0.2, doc="x")
    trusted = Setting("p.trusted", bool, default=False, doc="x")
    rules = [
        Check([named], lambda v: None if v["p.named"] else "nothing is named", id="p.named.needed", because="it is needed",
              suggest=["p.named=[first.one:of,2]"]),
        Check([share], lambda v: None if v["p.share"] > 1 else "too small", id="p.share.large", because="it is a ratio",
              suggest=["p.share=5.0"]),
        Check([trusted], lambda v: None if v["p.trusted"] else "not trusted", id="p.trusted.needed", because="it is code"),
    ]  # fmt: skip
    found = []
    for option, rule in zip((named, share, trusted), rules, strict=True):
        with pytest.raises(ConflictError) as raised:
            resolve(Theory.build([option], [rule]), Request({}))
        found += [" ".join(r) for r in raised.value.repairs]
    return found


def test_a_check_says_what_to_try_where_no_menu_does_and_a_switch_has_another_side():
    assert suggested() == ["p.named=[first.one:of,'2']", "p.share=5.0", "p.trusted=true"]


def test_what_a_check_suggests_is_an_override():
    rule = Check(["p.a"], lambda v: None, id="p.a.any", because="x", suggest=["p.z=1"])
    with pytest.raises(RuleError, match=r"rule `p\.a\.any` suggests `p\.z=1`, which is not an override"):
        Theory.build(COUNTED, [rule])


COUNTED = [Setting(f"p.{name}", int, default=1, doc="x") for name in "abc"]


def over(*limits: tuple[str, int]) -> ConflictError:
    """What is said of values of 9 where each of these settings has a limit."""
    rules = [
        Check([f"p.{name}"], lambda v, k=f"p.{name}", most=most: None if v[k] <= most else f"`{k}` is over {most}",
              id=f"p.{name}.most", because="there is an end")
        for name, most in limits
    ]  # fmt: skip
    request = Request({f"p.{name}": Choice(9, "f") for name, _ in limits})
    with pytest.raises(ConflictError) as raised:
        resolve(Theory.build(COUNTED, rules), request)
    return raised.value


def test_two_failed_checks_are_repaired_by_two_changes_each_named_once():
    assert [" ".join(r) for r in over(("a", 5), ("b", 3)).repairs] == ["p.a=5 p.b=3", "~p.a ~p.b"]


def test_three_failed_checks_are_repaired_by_three_changes():
    assert [" ".join(r) for r in over(("a", 5), ("b", 3), ("c", 2)).repairs] == ["p.a=5 p.b=3 p.c=2", "~p.a ~p.b ~p.c"]


def test_one_change_that_mends_two_checks_is_enough():
    rules = [
        Check(["p.a", f"p.{name}"], lambda v, k=f"p.{name}": None if v["p.a"] < v[k] else f"`p.a` is not below `{k}`",
              id=f"p.a.below_{name}", because="it comes before")
        for name in "bc"
    ]  # fmt: skip
    with pytest.raises(ConflictError) as raised:
        resolve(
            Theory.build(COUNTED, rules),
            Request({f"p.{n}": Choice(v, "f") for n, v in zip("abc", (9, 7, 8), strict=True)}),
        )
    assert len(raised.value.conflicts) == 2
    assert [" ".join(r) for r in raised.value.repairs] == ["p.a=6", "~p.a"]


def test_what_no_change_mends_is_not_repaired_in_part():
    rules = [
        Check(["p.a"], lambda v: "it is never right", id="p.a.never", because="it is so"),
        Check(["p.b"], lambda v: None if v["p.b"] < 3 else "too much", id="p.b.most", because="there is an end"),
    ]
    with pytest.raises(ConflictError) as raised:
        resolve(Theory.build(COUNTED, rules), Request({"p.b": Choice(9, "f")}))
    assert raised.value.repairs == ()


def test_secrets_stay_secret():
    token = Setting("hub.token", str, secret=True, doc="a password")
    rules = [Ignored(token, when=trainer == "sft", id="p.unread", because="nothing is fetched")]
    with pytest.raises(ConflictError) as raised:
        resolve(Theory.build([trainer, token], [RULES[0], *rules]), Request({"hub.token": Choice("hunter2", "f")}))
    assert "hunter2" not in str(raised.value)
    assert "you chose `hub.token=***` (f)" in str(raised.value)
    advise = Advise("fetching with {hub.token}", when=trainer == "sft", id="p.fetch")
    found = resolve(Theory.build([trainer, token], [RULES[0], advise]), Request({"hub.token": Choice("hunter2", "f")}))
    assert [note.text for note in found.notes] == ["fetching with ***"]


def test_what_would_make_a_supposition_possible():
    error = why_not(
        THEORY, Request({"packing.strategy": Choice("bfd", "f")}, {"device.type": "cpu"}), "flat.enabled", False
    )
    assert [" ".join(r) for r in error.repairs] == ["packing.strategy=wrapped", "packing.strategy=none"]


def test_a_contradiction_that_needs_a_case_split_names_every_rule():
    a, b = Bool("p.a", doc="x"), Bool("p.b", doc="x")
    rules = [
        Require(a.on | b.on, id="p.r1", because="1"), Require(a.on | b.off, id="p.r2", because="2"),
        Require(a.off | b.on, id="p.r3", because="3"), Require(a.off | b.off, id="p.r4", because="4"),
        Default(a, True, False, id="p.a.default", because="a"), Default(b, True, False, id="p.b.default", because="b"),
    ]  # fmt: skip
    with pytest.raises(ConflictError) as raised:
        resolve(Theory.build([a, b], rules), Request())
    assert set(raised.value.conflicts[0].rules) == {"p.r1", "p.r2", "p.r3", "p.r4"}
    assert len(str(raised.value).splitlines()) == 4


def test_an_option_that_a_repair_would_have_to_set_but_cannot_hides_no_other_repair():
    a, b, c = Bool("p.a", doc="x"), Enum("p.b", ("v",), doc="x"), Enum("p.c", ("v",), doc="x", role="derived")
    rules = [
        Default(a, False, id="p.a.default", because="a"), Default(b, "v", when=a.on, id="p.b.default", because="b"),
        Require((c == "v") | b.unset, id="p.needs", because="c"),
    ]  # fmt: skip
    with pytest.raises(ConflictError) as raised:
        resolve(Theory.build([a, b, c], rules), Request({"p.a": Choice(True, "f")}))
    assert raised.value.repairs == (("p.a=false",),)


def test_a_default_that_proposes_its_whole_menu_can_take_part_in_a_conflict():
    heat = Enum("pan.heat", ("low", "high"), doc="how hot")
    lid = Bool("pan.lid", doc="whether it is covered")
    rules = [
        Default(heat, "low", "high", id="p.heat", because="nothing burns"),
        Ignored(lid, when=heat == "low", id="p.lid", because="nothing spatters"),
    ]
    with pytest.raises(ConflictError) as caught:
        resolve(Theory.build([heat, lid], rules), Request({"pan.lid": Choice(True, "command line")}))
    (conflict,) = caught.value.conflicts
    assert set(conflict.rules) == {"p.heat", "p.lid"}
    assert caught.value.repairs == (("pan.heat=high",), ("~pan.lid",))
