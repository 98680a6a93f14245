"""`plugins show`, `plugins test` and `plugins trace`."""

import json
from dataclasses import replace

import pytest

from memcfg import Default, Enum, Forbid, Plugin, key
from memcfg.registry.installed import Installed
from memcfg.report.console import Terminal
from memcfg.report.plugins import show_checks
from memcfg.testing.examination import examine

PADDING = """\
padding: one document to a row, padded to equal width
  from memcfg 0.1.0 (`memcfg_padding:plugin`), ok, plugin interface 1

options
  padding.multiple_of: whole number of at least 1 (tokens), or null; default
    null
    round the width of every micro-batch up to a multiple of this; null rounds
    nothing
  batch.layout: padded, and what other plugins add; follows from others
    how documents become tensors: padded (one to a row), rows (several to a row,
    kept apart), flat (one long row)

rules
  padding.multiple_of.default
    proposes `padding.multiple_of=null`, because rounding only adds padding
  padding.layout.padded
    sets `batch.layout=padded` when `padding_free.enabled=false`, because
    without padding-free each row of the data gets a row of its own

values
  batch.layout=padded

hooks
  memcfg_layout
  memcfg_evidence
  in memcfg_padding.hooks, imported in every run

config groups
  padding: multiple, none
"""


def test_a_plugin_is_shown_whole(memcfg):
    code, out, err = memcfg("plugins", "show", "padding")
    assert (code, out, err) == (0, PADDING, "")


def test_a_plugin_as_data(memcfg):
    code, out, _ = memcfg("plugins", "show", "packing", "--json")
    data = json.loads(out)
    assert (code, data["ok"], data["api"]) == (0, True, 1)
    assert data["hooks"]["implements"] == ["memcfg_prepare_dataset", "memcfg_evidence"]
    assert data["commands"] == {"lengths": "memcfg_packing.lengths.command:main"}
    rules = {rule["id"]: rule for rule in data["rules"]}
    assert rules["packing.padding_free.forced"]["kind"] == "Force"
    assert rules["packing.strategy.bfd_requeue"]["says"] == (
        "`packing.strategy=bfd-requeue` is now called `packing.strategy=bfd_split`"
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("shwo",), "error: `shwo`: nothing reads this\n  did you mean `show`?\n"),
        (("show", "paddin"), "error: `paddin`: no such plugin\n  did you mean `padding`"),
        (("show",), "error: one name is needed\n  write `memcfg plugins show NAME`\n"),
        (("test", "a", "b"), "error: one name is needed\n  write `memcfg plugins test NAME`\n"),
        (("show", "memcfg"), "error: `memcfg`: a distribution of "),
        (("list", "padding"), "error: `padding`: `plugins list` takes no further words\n"),
        (("trace", "run.dir=here"), "error: `run.dir`: nothing reads this here\n"),
        (("trace", "packing=bdf"), "error: `packing=bdf`: `packing` has no `bdf`"),
    ],
)
def test_words_that_are_not_understood(memcfg, words, text):
    code, out, err = memcfg("plugins", *words)
    assert (code, out) == (2, "")
    assert err.startswith(text)


@pytest.mark.torch  # its hooks are imported
def test_a_plugin_of_memcfgs_own_is_tested(memcfg):
    code, out, _ = memcfg("plugins", "test", "padding")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "ok      declaration     2 options, 2 rules, plugin interface 1"
    assert lines[1].startswith("ok      light import    ")
    assert lines[2:] == [
        "ok      hooks           memcfg_layout, memcfg_evidence",
        "skipped config groups   it has none of its own",
        "skipped conservative    it is a part of memcfg",
        "skipped lint            `memcfg lint` looks at memcfg itself",
        "ok      rules           each changes some request",
        "",
        "`padding` (memcfg 0.1.0): no fault",
    ]


MODE = Enum("acme.mode", ("off", "on"), doc="what acme does")
BAD = Plugin(
    name="acme",
    options=[MODE],
    rules=[
        Default(MODE, "off", id="acme.mode.default", because="nobody asked"),
        Forbid(key("packing.strategy") == "bfd", id="acme.packing", because="acme counts rows"),
    ],
)


@pytest.mark.slow
def test_a_plugin_that_meddles_is_found_out(capsys):
    installed = Installed("acme", "acme-loss", "1.0", "json:plugin", BAD)
    checks = list(examine(installed))
    assert {check.name: check.result for check in checks} == {
        "declaration": "ok", "light import": "ok", "hooks": "skipped", "config groups": "skipped", "conservative": "fault", "lint": "fault", "rules": "ok",
    }  # fmt: skip
    Terminal(color=False).show(*show_checks(installed, checks))
    out = capsys.readouterr().out
    assert "fault   conservative    packing.strategy=bfd device.type=cpu: it has a plan, and" in out
    assert "unread-option acme.mode: nothing reads it" in out
    assert out.endswith("`acme` (acme-loss 1.0): 2 faults\n")
    assert all(len(line) <= 80 for line in out.splitlines() if "`" not in line)


def test_a_group_file_that_no_option_reads_is_found_out(tmp_path):
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "on.yaml").write_text('mode: "on"\n')
    (tmp_path / "acme" / "loud.yaml").write_text("mode: loud\n")
    (tmp_path / "acme" / "odd.yaml").write_text("mood: on\n")
    acme = replace(BAD, rules=BAD.rules[:1], conf=f"file://{tmp_path}")
    checks = examine(Installed("acme", "acme-loss", "1.0", "json:plugin", acme))
    groups = next(check for check in checks if check.name == "config groups")
    assert groups.result == "fault"
    told = "\n".join(groups.lines)
    assert "acme=loud: `acme.mode`: `loud` is not one of `off`, `on`" in told
    assert "acme=odd: `acme.mood`: no such option" in told
    assert "acme=on:" not in told


def test_a_broken_plugin_is_not_looked_at_further():
    broken = Installed("acme", "acme-loss", "1.0", "acme:plugin").broken("No module named 'acme'")
    assert [(c.name, c.result, c.lines) for c in examine(broken)] == [
        ("declaration", "fault", ("broken: No module named 'acme'",))
    ]


@pytest.mark.torch
def test_the_hook_calls_of_a_short_run(memcfg, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "one line of text"}\n' * 4)
    small = (
        "model.hidden=32",
        "model.heads=2",
        "model.kv_heads=1",
        "model.layers=1",
        "data=jsonl",
        "data.path=rows.jsonl",
    )
    code, out, _ = memcfg("plugins", "trace", "--json", *small)
    calls = [(call["hook"], call["plugin"]) for call in json.loads(out[out.index("{") :])["calls"]]
    assert code == 0
    assert calls[0] == ("memcfg_load_tokenizer", "model")
    assert calls.index(("memcfg_prepare_dataset", "sft")) < calls.index(("memcfg_prepare_dataset", "truncation"))
    assert ("memcfg_evidence", "padding") in calls
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "error: one name is needed\n  write\n  `memcfg plugins new NAME [--kind KIND]"),
        (("acme", "--kind", "los"), "error: `--kind`: `los` is not one of `loss` and `data`\n  did you mean `loss`?\n"),
        (("acme", "--license=gpl"), "error: `--license`: `gpl` is not one of `apache-2.0`, `mit` and `none`\n"),
        (("acme", "--into", "nowhere"), "error: `nowhere`: no such folder\n"),
        (("padding",), "error: `padding`: a plugin of this name is installed already (memcfg 0.1.0)\n"),
    ],
)
def test_a_package_that_cannot_be_written(memcfg, tmp_path, words, text):
    code, out, err = memcfg("plugins", "new", *words)
    assert (code, out) == (2, "")
    assert err.startswith(text)
    assert list(tmp_path.iterdir()) == []


def test_a_package_is_written_and_what_is_next_is_said(memcfg, tmp_path):
    code, out, _ = memcfg("plugins", "new", "acme")
    assert code == 0
    assert out.startswith("wrote memcfg-acme: 11 files\n  .gitignore\n  LICENSE\n")
    assert out.endswith(
        "next\n  pip install -e memcfg-acme\n  python -m memcfg resolve loss=acme\n  python -m pytest memcfg-acme\n"
        "  python -m memcfg plugins test acme\n"
    )
    code, out, err = memcfg("plugins", "new", "acme")
    assert (code, err) == (
        1,
        "error: `memcfg-acme`: there is something of this name already\n  `--into` another folder\n",
    )
    assert json.loads(memcfg("plugins", "new", "acme2", "--json")[1])["folder"] == "memcfg-acme2"


@pytest.mark.torch
def test_of_a_run_that_fails_the_calls_until_then_are_shown(memcfg, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"nothing": "to learn"}\n')
    code, out, err = memcfg("plugins", "trace", "data=jsonl", "data.path=rows.jsonl")
    assert (code, err[err.index("error:") :].startswith("error: `rows.jsonl")) == (1, True), err
    assert "memcfg_load_tokenizer" in out
    assert "memcfg_optimizer" not in out


def test_what_is_wrong_is_an_object_too(memcfg):
    code, out, err = memcfg("plugins", "show", "paddin", "--json")
    assert (code, err) == (2, "")
    assert json.loads(out)["errors"][0]["nearest"][0] == "padding"
