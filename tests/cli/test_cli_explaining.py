"""`explain`, `why-not` and `diff`, asked of the installed rules."""

import json

import pytest


def test_explain_leads_back_to_what_was_typed(memcfg):
    code, out, err = memcfg("explain", "padding_free.enabled", "+packing=bfd_split")
    assert (code, err) == (0, "")
    assert "padding_free.enabled = true\n│ forced, because best-fit rows hold documents" in out
    assert "[packing.padding_free.forced]" in out
    assert out.endswith("└─ packing.strategy = bfd_split\n     you: command line, packing/bfd_split.yaml\n")


def test_explain_as_an_object(memcfg):
    code, out, _ = memcfg("explain", "padding_free.enabled", "+packing=bfd_split", "--json")
    shown = json.loads(out)
    assert (code, shown["ok"], shown["option"], shown["values"]) == (0, True, "padding_free.enabled", [False, True])
    assert shown["trail"]["rule"] == "packing.padding_free.forced"
    assert shown["trail"]["when"] == "packing.strategy in (bfd, bfd_split)"
    assert [(cause["key"], cause["kind"]) for cause in shown["trail"]["from"]] == [("packing.strategy", "you")]


def test_explain_reads_a_plan_and_short_names(memcfg, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "resolved.yaml").write_text(memcfg("resolve", "packing=bfd", "budget=1gib", "--yaml")[1])
    assert "packing.strategy = bfd" in memcfg("explain", "padding_free.enabled", "run")[1]
    assert "budget.bytes = 1gib" in memcfg("explain", "budget", "run/resolved.yaml")[1]


def test_why_not_names_the_rule_and_what_makes_it_possible(memcfg):
    code, out, _ = memcfg("why-not", "padding_free.enabled=false", "packing=bfd", "--json")
    shown = json.loads(out)
    assert (code, shown["ok"], shown["possible"], shown["changes"]) == (0, True, False, [])
    assert "packing.padding_free.forced" in shown["conflicts"][0]["rules"]
    assert ["packing.strategy=none"] in shown["repairs"]
    assert "suppose `padding_free.enabled=false`" in memcfg("why-not", "padding_free.enabled=false", "packing=bfd")[1]


def test_why_not_of_what_is_possible_tells_what_comes_with_it(memcfg):
    code, out, _ = memcfg("why-not", "loss.type=nll", "--json")
    shown = json.loads(out)
    assert (code, shown["possible"]) == (0, True)
    assert {change["key"]: change["b"]["value"] for change in shown["changes"]} == {
        "loss.type": "nll",
        "loss.kernel": "full",
    }
    assert [change["from"] for change in shown["changes"] if change["key"] == "loss.kernel"] == [["loss.type"]]


def test_why_not_of_a_group_and_of_a_derived_option(memcfg):
    assert "is possible" in memcfg("why-not", "packing=bfd")[1]
    out = memcfg("why-not", "packing=bfd", "truncation.max_length=null")[1]
    assert "`packing=bfd` is not possible" in out
    assert "packing.max_length.needed" in out
    assert "padding_free.layout.rows" in memcfg("why-not", "batch.layout=padded", "packing=bfd")[1]


def test_diff_says_what_follows_from_what(memcfg, tmp_path):
    code, out, _ = memcfg("diff", "packing=bfd run.steps=3", "packing=wrapped", "--json")
    changes = {change["key"]: change for change in json.loads(out)["changes"]}
    assert code == 0
    assert (changes["run.steps"]["a"]["value"], changes["run.steps"]["b"]["kind"]) == (3, "default")
    assert changes["padding_free.enabled"]["from"] == ["packing.strategy"]
    assert changes["padding_free.enabled"]["a"]["rule"] == "packing.padding_free.forced"
    (tmp_path / "plan.yaml").write_text(memcfg("resolve", "packing=bfd", "--yaml")[1])
    assert memcfg("diff", "packing=bfd", "plan.yaml")[1] == "every option has the same value in both\n"
    assert memcfg("diff", "", "packing=bfd")[1].startswith("A: the plain run\nB: packing=bfd\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain"], "error: `explain` needs the option to explain\n  write `memcfg explain OPTION [OVERRIDES]`"),
        (["explain", "packing.strategi"], "no such option\n  did you mean `packing.strategy`?"),
        (["explain", "packing"], "error: `packing`: a section, not an option\n  did you mean `packing.buffer`"),
        (["explain", "run.steps", "nowhere.yaml"], "error: `nowhere.yaml`: cannot read the plan"),
        (["explain", "run.steps", "packing=bfd", "truncation.max_length=null"], "error: no plan satisfies"),
        (["explain", "run.steps", "--yaml"], "error: `--yaml`: `explain` does not read this flag"),
        (["why-not", "loss.type"], "error: `why-not` needs the option and the value\n"),
        (["why-not", "loss.type=nl"], "did you mean `nll`?"),
        (["why-not", "packing=bfd", "packing=bfd"], "error: `packing=bfd`: is what the request says already"),
        (["diff", "packing=bfd"], "error: `diff` compares two requests, each one word of the shell"),
        (["diff", "packing='bfd", ""], "error: `packing='bfd`: cannot be read: no closing quotation"),
        (["diff", "", "packing=bfd truncation.max_length=null"], "error: no plan satisfies"),
    ],
)
def test_what_cannot_be_answered_is_said(memcfg, words, said):
    code, out, err = memcfg(*words)
    assert code in (1, 2)
    assert out == ""
    assert said in err


@pytest.mark.slow
def test_lint_is_clean_and_counts_what_no_test_names(memcfg, tmp_path, monkeypatch):
    from memcfg.registry import lint

    looked, look = [], lint.lint  # all commands below look at the same rules: once is enough
    monkeypatch.setattr(lint, "lint", lambda theory: looked or looked.extend(look(theory)) or looked)
    code, out, err = memcfg("lint")
    assert (code, err) == (0, "")
    assert out.endswith("allowed by the plugins (`--all` says why)\n")
    (tmp_path / "ids").write_text("packing.strategy.default\n")
    code, out, _ = memcfg("lint", "--json", "--exercised", "ids")
    shown = json.loads(out)
    about = {finding["about"] for finding in shown["findings"]}
    assert (code, shown["ok"]) == (1, False)
    assert "packing.eval.default" in about
    assert "packing.strategy.default" not in about
    assert memcfg("lint", "packing=bfd")[0] == 2
    assert "cannot read `none`: no such file or directory" in memcfg("lint", "--exercised", "none")[2]
