"""Flags, commands and what is said of those that do not exist."""

import json
import os

import pytest
import yaml

from memcfg.commands.arguments import read
from memcfg.errors import RequestError


@pytest.mark.parametrize(
    ("words", "command", "rest", "flags", "values"),
    [
        ([], None, [], set(), {}),
        (["packing=bfd"], None, ["packing=bfd"], set(), {}),
        (["+packing=bfd", "~run.steps"], None, ["+packing=bfd", "~run.steps"], set(), {}),
        (["resolve", "packing=bfd", "--json"], "resolve", ["packing=bfd"], {"json"}, {}),
        (["--quiet", "resolve", "--all", "a=b"], "resolve", ["a=b"], {"quiet", "all"}, {}),
        (["-m", "a=1,2"], None, ["a=1,2"], {"multirun"}, {}),
        (["--config-dir", "x", "resolve", "a=1"], "resolve", ["a=1"], set(), {"config_dir": "x"}),
        (["--config-dir=x", "a=1"], None, ["a=1"], set(), {"config_dir": "x"}),
        (
            ["--cfg", "job", "a=1", "-p", "packing", "b=2"],
            None,
            ["a=1", "b=2"],
            set(),
            {"cfg": "job", "package": "packing"},
        ),
        (["--info", "a=1"], None, ["a=1"], set(), {"info": "all"}),
        (["--info", "searchpath", "a=1"], None, ["a=1"], set(), {"info": "searchpath"}),
        (["run", "runs/x/resolved.yaml"], "run", ["runs/x/resolved.yaml"], set(), {}),
        (["a=1", "resolve"], None, ["a=1", "resolve"], set(), {}),
        (["lengths", "--json", "-x"], "lengths", ["--json", "-x"], set(), {}),
    ],
)
def test_the_command_line_is_read(words, command, rest, flags, values):
    found = read(words, raw=("lengths",))
    assert (found.command, found.rest, found.flags, found.values) == (command, rest, flags, values)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--jsn"], "did you mean `--json`"),
        (["--config-name=x"], "the primary config is generated"),
        (["-cp", "x"], "the primary config is generated"),
        (["--cfg", "jobb"], "takes one of job, hydra, all, not `jobb`"),
        (["--info", "nope"], "takes one of all, config, defaults, defaults-tree, plugins, searchpath, not `nope`"),
        (["--cfg"], "needs a value"),
        (["--experimental-rerun", "x"], "write `memcfg run RUN/resolved.yaml`"),
    ],
)
def test_an_odd_flag_is_refused(words, said):
    with pytest.raises(RequestError) as caught:
        read(words)
    assert said in str(caught.value)


def test_a_flag_that_a_command_does_not_read_is_refused(memcfg):
    code, out, err = memcfg("plugins", "--all", "--cfg", "job")
    assert (code, out) == (2, "")
    code, out, err = memcfg("--yaml", "packing=bfd")
    assert (code, out) == (2, "")
    assert err == "error: `--yaml`: `train` does not read this flag\n"


def test_a_misspelt_command_names_the_nearest(memcfg):
    code, out, err = memcfg("resolv", "packing=bfd")
    assert (code, out) == (2, "")
    assert err.startswith("error: `resolv`: no such command\n  did you mean `resolve`?\n  commands are `train`, ")
    assert err.endswith("`resolv=...`\n")


def test_the_version(memcfg):
    import memcfg as package

    assert memcfg("--version") == (0, f"memcfg {package.__version__}\n", "")


def test_the_help_page_names_commands_groups_and_examples(memcfg):
    code, out, _ = memcfg("--help")
    assert code == 0
    for word in ("  resolve ", "  packing ", "bfd_split", "--multirun", "examples", "~KEY"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("explain", "--help"), "`memcfg explain OPTION [OVERRIDES]`: how one value was decided"),
        (("report", "-h"), "  --out FILE, --open"),
        (("plugins", "--help"), "  --kind, --license, --into"),
        (("plugins", "--help"), "  memcfg plugins show NAME"),
        (("lengths", "-q", "--help"), "`memcfg lengths`: how long documents are"),
        (("completion", "--help"), "`memcfg completion bash|zsh|fish`"),
    ],
)
def test_a_command_has_a_help_page_of_its_own(memcfg, words, said):
    code, out, err = memcfg(*words)
    assert (code, err) == (0, "")
    assert said in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_help_page_knows_a_folder_of_ones_own(memcfg, tmp_path):
    (tmp_path / "conf" / "soup").mkdir(parents=True)
    (tmp_path / "conf" / "soup" / "hot.yaml").write_text("")
    assert "  soup " in memcfg("--help", "--config-dir", "conf")[1]


def test_the_plugins_are_listed(memcfg):
    code, out, _ = memcfg("plugins", "--json")
    listed = {p["name"]: p for p in json.loads(out)["plugins"]}
    assert code == 0
    assert listed["packing"]["status"] == "ok"
    assert listed["packing"]["distribution"] == "memcfg"
    assert "packing.strategy" in listed["packing"]["options"]
    assert memcfg("plugins", "list")[1] == memcfg("plugins")[1]


def test_resolve_prints_the_plan_in_three_forms(memcfg, tmp_path):
    from memcfg import planfile

    code, table, err = memcfg("resolve", "+packing=bfd_split")
    assert (code, err) == (0, "")
    assert table.startswith("plan for ")
    assert "padding_free.enabled  true" in table
    assert max(map(len, table.splitlines())) <= 80

    code, text, err = memcfg("resolve", "+packing=bfd_split", "--json")
    shown = json.loads(text)
    assert (code, err, shown["ok"]) == (0, "", True)
    assert shown["options"]["packing.strategy"]["value"] == "bfd_split"
    assert shown["options"]["packing.strategy"]["kind"] == "you"
    assert shown["options"]["padding_free.enabled"]["kind"] == "forced"
    assert "requested" not in shown["options"]["padding_free.enabled"]
    assert "packing" in shown["active"]

    code, text, _ = memcfg("resolve", "+packing=bfd_split", "--yaml")
    (tmp_path / "plan.yaml").write_text(text)
    plan = planfile.load(tmp_path / "plan.yaml")
    assert code == 0
    assert yaml.safe_load(text)["memcfg_plan"] == 1
    assert {key: option["value"] for key, option in shown["options"].items()} == {
        key: planfile.plain(plan.get(key)) for key in plan
    }


def test_all_shows_every_option(memcfg):
    assert len(memcfg("resolve", "--all")[1].splitlines()) > len(memcfg("resolve")[1].splitlines()) + 30


def test_a_conflict_is_an_object_too(memcfg):
    code, out, err = memcfg("resolve", "packing=bfd", "truncation.max_length=null", "--json")
    shown = json.loads(out)
    assert (code, err, shown["ok"]) == (2, "", False)
    assert "packing.strategy" in shown["conflicts"][0]["options"]
    assert shown["repairs"]
    for repair in shown["repairs"]:
        assert memcfg("resolve", "packing=bfd", "truncation.max_length=null", *repair)[0] == 0


def test_a_fault_is_an_object_too(memcfg):
    code, out, _ = memcfg("resolve", "packing.strategi=bfd", "--json")
    assert code == 2
    assert json.loads(out)["errors"] == [
        {"key": "packing.strategi", "text": "no such option (command line)", "nearest": ["packing.strategy"]}
    ]


def test_the_old_name_of_bfd_split_is_understood(memcfg):
    shown = json.loads(memcfg("resolve", "packing=bfd-requeue", "--json")[1])
    assert shown["options"]["packing.strategy"]["value"] == "bfd_split"
    assert shown["options"]["packing.strategy"]["requested"] == "bfd-requeue"
    assert [note["level"] for note in shown["notes"]] == ["deprecation"]


def test_the_shipped_presets_resolve(memcfg):
    from memcfg.files import conf_root

    presets = sorted(file.stem for file in (conf_root() / "experiment").glob("*.yaml"))
    assert presets
    for preset in presets:
        assert memcfg("resolve", f"experiment={preset}")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["assume.device=h100"], "error: `assume`: `device.capability` and `device.type` are assumed"),
        (["run.dir=file/below"], "error: `run.dir`: cannot use `file/below`: not a directory"),
        (["run.dir=old"], "error: `run.dir`: `old` already holds a run"),
        (["packing=bfdd"], "error: `packing=bfdd`: `packing` has no `bfdd`"),
        (["+truncation.max_length=0"], "error: `truncation.max_length`"),
        (["truncation.max_length=-3"], "error: `truncation.max_length`"),
        (["truncation.max_length=long"], "error: `truncation.max_length`"),
        (["-m", "packing=bfd,bfdd"], "error: `packing=bfd,bfdd`: `packing` has no `bfdd`"),
        (["-m", "truncation.max_length=None,3"], "error: `truncation.max_length`: `None` is text here"),
        (["run"], "error: `run` takes one plan"),
        (["run", "old", "packing=bfd"], "error: `packing=bfd`: `run` takes no override but `run.dir` and `run.resume`"),
        (["run", "nowhere"], "error: `nowhere`: cannot read the plan: no such file or directory"),
        (["run", "old"], "error: `old/resolved.yaml`: is no memcfg plan"),
    ],
)
def test_what_cannot_be_run_is_refused_and_leaves_nothing(memcfg, tmp_path, words, said):
    (tmp_path / "file").write_text("")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "resolved.yaml").write_text("a: 1\n")
    code, _, err = memcfg(*words)
    assert code in (1, 2)
    assert err.lstrip().startswith(said)
    assert "Traceback" not in err
    assert sorted(os.listdir(tmp_path)) == ["file", "old"]


def test_a_plan_for_another_host_is_refused(memcfg, tmp_path):
    from dataclasses import replace

    import memcfg as package
    from memcfg import planfile

    plan = package.resolve(["packing=bfd_split"])
    assert "device.type" in plan.fact_reads
    there = {**plan.decisions, "device.type": replace(plan.decisions["device.type"], value="cuda")}
    planfile.save(replace(plan, decisions=there), tmp_path / "there.yaml")
    code, _, err = memcfg("run", "there.yaml")
    assert code == 1
    assert "error: `device.type`: the plan was made where this is `cuda`, and here it is\n  `cpu`\n" in err
    planfile.save(package.resolve(["assume.device=cpu"]), tmp_path / "assumed.yaml")
    assert memcfg("run", "assumed.yaml")[0] == 2
    assert sorted(os.listdir(tmp_path)) == ["assumed.yaml", "there.yaml"]


def test_a_fault_of_the_program_is_one_message_unless_asked_for(memcfg, monkeypatch):
    import memcfg.commands.resolve as command

    monkeypatch.setattr(command, "main", _broken)
    code, _, err = memcfg("resolve")
    assert code == 1
    assert err.startswith("error: unexpected KeyError: 'x'\n  at ")
    assert "Traceback" not in err
    monkeypatch.setenv("MEMCFG_DEBUG", "1")
    assert "Traceback" in memcfg("resolve")[2]


def _broken(*_: object) -> int:
    return {}["x"]


def test_an_interrupt_is_one_line(memcfg, monkeypatch):
    import memcfg.commands.resolve as command

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "main", interrupted)
    assert memcfg("resolve") == (130, "", "interrupted\n")


def test_a_taken_folder_gets_a_suffix(tmp_path, monkeypatch):
    import time

    from memcfg.commands.train import fresh

    monkeypatch.setattr(time, "strftime", lambda _: "now")
    assert [fresh(tmp_path / "runs").name for _ in range(3)] == ["now", "now_2", "now_3"]
