"""The kit's questions about rules: each says yes to a good plugin, and of a bad one what is wrong."""

import pytest

from memcfg import Advise, Default, Enum, Forbid, Ignored, Plugin, PluginError, Setting, key
from memcfg.testing import assert_conservative, assert_light_import, assert_lint_clean, assert_rules_exercised

MODE = Enum("acme.mode", ("off", "on"), doc="what acme does")
LEVEL = Setting("acme.level", int, default=1, doc="how much of it")
OFF = Default(MODE, "off", id="acme.mode.default", because="nobody asked for it")
UNUSED = Ignored(LEVEL, when=MODE == "off", id="acme.level.unused", because="only acme has a level")
PACKED = Forbid(
    (MODE == "on") & (key("packing.strategy") == "bfd"), id="acme.packing", because="acme counts rows",
    suggest=["packing.strategy=none"],
)  # fmt: skip


def acme(*rules, **more):
    return Plugin(**{"name": "acme", "options": [MODE, LEVEL], "rules": [OFF, UNUSED, *rules], **more})


@pytest.fixture
def bench(lab):
    return lab.add(acme(PACKED), "memcfg").host(device__type="cpu")


def test_an_answer_has_values_and_reasons(bench):
    answer = bench.resolve("packing=bfd", acme__mode="off")
    assert (answer.value("packing.strategy"), answer.value("acme.mode")) == ("bfd", "off")
    assert answer.because("packing.strategy") is None
    assert answer.because("padding_free.enabled") == "best-fit rows hold documents that must not see each other"
    assert answer.decision("acme.mode").kind == "you"


def test_values_and_overrides_say_the_same(bench):
    typed, given = bench.resolve("acme.mode=on", "acme.level=3"), bench.resolve(acme__mode="on", acme__level=3)
    assert typed.plan.decisions["acme.level"].value == given.plan.decisions["acme.level"].value == 3
    assert given.because("acme.mode") is None


def test_a_lab_holds_what_is_put_into_it(lab):
    assert [p.name for p in lab.registry.plugins] == ["core"]
    assert lab.add(acme()).resolve().because("acme.mode") == "nobody asked for it"
    with pytest.raises(PluginError, match="no installed plugin or distribution has this name"):
        lab.add("no-such-plugin").resolve()


def test_a_conflict_has_culprits_and_ways_out(bench):
    answer = bench.resolve(acme__mode="on", packing__strategy="bfd")
    error = answer.conflict(blames=["acme.packing"], suggests="packing.strategy=none")
    assert "because acme counts rows" in str(error)
    with pytest.raises(AssertionError, match=r"acme\.level\.unused takes no part in the conflict"):
        answer.conflict(blames="acme.level.unused")
    with pytest.raises(AssertionError, match=r"\['acme.mode=never'\] is not suggested; these repairs are"):
        answer.conflict(suggests=["acme.mode=never"])
    with pytest.raises(type(error)):
        answer.value("acme.mode")
    with pytest.raises(AssertionError, match="there is no conflict: it resolves"):
        bench.resolve().conflict()


def test_a_refusal_names_its_key(bench):
    assert "is not one of" in bench.resolve(acme__mode="loud").refused("acme.mode").text
    with pytest.raises(AssertionError, match=r"`acme\.level` is not refused: it resolves"):
        bench.resolve().refused("acme.level")


def test_a_note_has_a_rule(lab):
    hint = Advise("acme is slow", id="acme.slow", when=MODE == "on", because="it is")
    lab.add(acme(hint))
    assert lab.resolve(acme__mode="on").note("acme.slow").text.startswith("acme is slow")
    with pytest.raises(AssertionError, match=r"`acme\.slow` left no note"):
        lab.resolve().note("acme.slow")


REQUESTS = [{"packing.strategy": "bfd"}, {"trainer.name": "dpo", "run.batch_size": 3}]


def test_a_plugin_that_minds_its_own_business_is_conservative():
    assert_conservative(acme(PACKED), REQUESTS)


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (
            acme(Forbid(key("packing.strategy") == "bfd", id="acme.packing", because="acme counts rows")),
            "  packing.strategy=bfd device.type=cpu: it has a plan, and with it it is a conflict of ['acme.packing']",
        ),
        (
            acme(Advise("look here", id="acme.hint", when=key("packing.strategy") == "bfd", because="I am new")),
            "  packing.strategy=bfd device.type=cpu: its notes are [], and with it ['look here']",
        ),
        (
            acme(hooks="acme.hooks"),
            "  packing.strategy=bfd device.type=cpu: plugin `acme` is active (give it an `active=` condition)",
        ),
    ],
)
def test_a_plugin_that_changes_others_runs_is_told_where(plugin, text):
    with pytest.raises(AssertionError) as error:
        assert_conservative(plugin, REQUESTS[:1])
    head, first, *_ = str(error.value).splitlines()
    assert head == "requests that do not mention the plugin are resolved otherwise:"
    assert first == text


def test_what_is_asked_by_default_reaches_every_trainer_and_most_options():
    from memcfg.testing.conservative import everything
    from memcfg.testing.subject import without_it

    registry = without_it()
    asked = {(key, value) for request in everything(registry) for key, value in request.items()}
    assert {("trainer.name", name) for name in registry.options["trainer.name"].values} <= asked
    assert {("packing.strategy", "bfd"), ("offload.activations", "all"), ("liger.enabled", True)} <= asked


def test_rules_that_no_request_needs_are_named():
    used = [{}, {"acme.level": 2}, {"acme.mode": "on", "packing.strategy": "bfd"}]
    assert_rules_exercised(acme(PACKED), used)
    with pytest.raises(AssertionError, match=r"comes out the same: acme\.level\.unused, acme\.packing$"):
        assert_rules_exercised(acme(PACKED), [{}])


def test_rules_that_are_exercised_are_written_down(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMCFG_EXERCISED", str(tmp_path / "rules"))
    bench.resolve().because("acme.mode")
    bench.resolve(acme__mode="on", packing__strategy="bfd").conflict(blames=["acme.packing"])
    assert (tmp_path / "rules").read_text().split() == ["acme.mode.default", "acme.packing"]


@pytest.mark.slow
def test_lint_speaks_of_the_plugin_alone():
    never = Forbid(MODE == "on", id="acme.never", because="nobody may")
    with pytest.raises(AssertionError, match=r"always-forced acme\.mode: of its values only `off` can be chosen"):
        assert_lint_clean(Plugin(name="acme", options=[MODE], rules=[OFF, never]))
    assert_lint_clean(Plugin(name="acme", options=[MODE], rules=[OFF, PACKED]))


def test_a_declaration_that_brings_torch_is_heavy(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in {"light_acme": "import json\n", "heavy_acme": "import numpy\n", "odd_acme": "1 / 0\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert_light_import("light_acme")
    with pytest.raises(AssertionError, match="importing `heavy_acme` also imports `numpy`"):
        assert_light_import("heavy_acme")
    with pytest.raises(AssertionError, match="`odd_acme` cannot be imported: ZeroDivisionError: division by zero"):
        assert_light_import("odd_acme")
