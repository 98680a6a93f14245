"""Faults for which plugins, code and tests have to be known; and that memcfg's own rules have none."""

import json
import sys
from itertools import count

import pytest

from memcfg import Default, Enum, Forbid, NotYet, Plugin, Setting
from memcfg.registry import load
from memcfg.registry.lint import lint_installed
from memcfg.report.console import Terminal
from memcfg.report.lint import lint_data, show_lint
from memcfg.solver.lint import Finding

KIND = Enum("soup.kind", ("hot", "cold", "sour"), doc="which soup")
RULES = [
    Default(KIND, "hot", id="soup.kind.default", because="it is winter"),
    Forbid(KIND == "sour", id="soup.kind.sour", because="nobody eats it"),
]
SPOON, CUP = Setting("soup.spoon", int, default=1, doc="spoons"), Setting("soup.cup", int, default=1, doc="cups")
DEAD = "dead-value soup.kind=sour"
NUMBERS = count()


def registry(**more):
    return load(discover=False, extra=[Plugin(name="soup", **{"options": [KIND], "rules": RULES, **more})])


def names(linted):
    return [finding.name for finding in linted.found if "soup" in finding.name]


@pytest.mark.slow
def test_memcfgs_own_rules_are_clean():
    linted = lint_installed(load())
    assert [finding.name for finding in linted.found] == []
    own = {name for p in load().plugins if p.first_party and p.plugin for name in p.plugin.allowed}
    assert own == {finding.name for finding, _ in linted.allowed}, "something is allowed that is no longer found"


def test_what_a_plugin_allows_is_kept_with_its_reason():
    assert names(lint_installed(registry())) == [DEAD]
    linted = lint_installed(registry(allowed={DEAD: "the menu is printed"}))
    assert names(linted) == []
    assert [(finding.name, why) for finding, why in linted.allowed] == [(DEAD, "the menu is printed")]


@pytest.fixture
def kitchen(tmp_path, monkeypatch):
    """A package of hooks: `kitchen(text)` is its name, of which there is no second: what is read once is remembered."""
    name = f"soup_hooks_{next(NUMBERS)}"

    def write(text):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
        return name

    monkeypatch.syspath_prepend(str(tmp_path))
    yield write
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("x = plan['soup.spoon'], plan.get('soup.cup')\n", []),
        ("x = [plan[f'soup.{name}'] for name in names]\n", []),
        ("x = plan[f'{section}.spoon']\n", ["unread-option soup.cup"]),
        ("spoon = Setting('soup.spoon', int)\n", ["unread-option soup.cup", "unread-option soup.spoon"]),
        ('"""soup.spoon and soup.cup."""\n', ["unread-option soup.cup", "unread-option soup.spoon"]),
    ],
)
def test_options_that_nothing_reads(kitchen, text, unread):
    found = names(lint_installed(registry(options=[KIND, SPOON, CUP], hooks=kitchen(text))))
    assert sorted(name for name in found if name.startswith("unread")) == unread


def test_hooks_may_lie_in_a_single_module(tmp_path, monkeypatch):
    (tmp_path / "soup_single.py").write_text("x = plan['soup.spoon']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = names(lint_installed(registry(options=[KIND, SPOON, CUP], hooks="soup_single")))
    assert [name for name in found if name.startswith("unread")] == ["unread-option soup.cup"]


def test_options_of_what_cannot_be_run_yet_are_left_in_peace(kitchen):
    soon = [NotYet(KIND == "cold", because="there is no ice")]
    assert names(lint_installed(registry(options=[KIND, SPOON], hooks=kitchen(""), not_yet=soon))) == [DEAD]


def test_rules_that_no_test_names():
    found = lint_installed(registry(), exercised={"soup.kind.default"}).found
    assert "unexercised-rule soup.kind.sour" in {finding.name for finding in found}
    assert "unexercised-rule soup.kind.default" not in {finding.name for finding in found}


def test_a_plugin_whose_defaults_are_ambiguous_is_named():
    rules = [*RULES, Default(KIND, "cold", id="soup.kind.other", because="it is summer")]
    found = {f.name: f for f in lint_installed(load(discover=False, extra=[Plugin(name="soup", options=[KIND], rules=rules)],
                                                    strict=False)).found}  # fmt: skip
    assert "may both apply and differ" in found["broken-plugin soup"].text


class Judged:
    found = (
        Finding("dead-value", "soup.kind=sour", "no request can have this value", ("soup.kind.sour",)),
        Finding("force-clash", "a.x b.y", "both fire here", ("gone.rule",), ("soup.kind=hot", "assume.x=true")),
    )
    allowed = ((Finding("dead-rule", "soup.x", "never speaks"), "it guards"),)


def test_faults_as_text(capsys):
    theory = registry().theory
    line = theory.rules["soup.kind.sour"].source
    Terminal(color=False).show(*show_lint(Judged(), theory, everything=True))
    shown = (
        capsys.readouterr().out.replace(str(line.file), "FILE").replace("tests/registry/test_lint_installed.py", "FILE")
    )
    assert (
        shown
        == f"""\
dead-value: `soup.kind=sour`
  no request can have this value
  rule `soup.kind.sour` (FILE:{line.line})

force-clash: `a.x b.y`
  both fire here
  rule `gone.rule`
  shown by `soup.kind=hot` `assume.x=true`

allowed: dead-rule: `soup.x`
  because it guards

{len(theory.rules)} rules and {len(theory.options)} options: 2 faults, 1 allowed by the plugins (`--all` says why)
"""
    )


def test_faults_as_data():
    data = lint_data(Judged(), registry().theory)
    assert (data["ok"], len(data["findings"]), data["allowed"][0]["because"]) == (False, 2, "it guards")
    assert data["findings"][0]["sources"][0].endswith(f"test_lint_installed.py:{RULES[1].source.line}")
    assert json.dumps(data)
