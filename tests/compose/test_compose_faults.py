"""What is refused, by which name, and what is offered instead."""

import pytest

from memcfg.errors import RequestError

KEEP = object()


@pytest.mark.parametrize(
    ("override", "key", "said", "nearest"),
    [
        ("soup.kinds=hot", "soup.kinds", "no such option (command line)", ("soup.kind",)),
        ("+soup.kinds=hot", "soup.kinds", "no such option (command line)", ("soup.kind",)),
        ("++soup.kinds=hot", "soup.kinds", "no such option (command line)", ("soup.kind",)),
        ("soup={kinds: hot}", "soup.kinds", "no such option (command line)", ("soup.kind",)),
        ("bread.depth=3", "bread.depth", "`depth` belongs to `soup`", ("soup.depth",)),
        ("depth=3", "depth", "`depth` belongs to `soup`", ("soup.depth",)),
        ("+learning-rate=1e-5", "learning-rate", "`learning_rate` belongs to `run`", ("run.learning_rate",)),
        ("gradient_accumulation_steps=2", "gradient_accumulation_steps", "no such option", ("run.accumulation",)),
        ("soup.kind.deeper=3", "soup.kind.deeper", "no such option", KEEP),
        ("soop=hot", "soop", "no such group (command line)", ("soup=hot",)),
        ("zzz=1", "zzz", "no such option", ()),
        ("soup=hott", "soup=hott", "`soup` has no `hott`", ("soup=hot",)),
        ("+soup=hott", "+soup=hott", "`soup` has no `hott`", ("soup=hot",)),
        ("soup=512", "soup=512", "`soup` has no `512`; it has `cold`, `hot`, `none`", ()),
        ("soup=[hot,cold]", "soup=[hot,cold]", "`soup` has no `['hot', 'cold']`", ()),
        ("bread=none", "bread=none", "`bread` has no file that switches it off", ()),
        ("run=3", "run", "a section, not an option (command line)", KEEP),
        ("soup@plate=hot", "soup@plate=hot", "a group has its place already", ()),
        ("soup.depth=None", "soup.depth", "`None` is text here, not nothing (command line)", ()),
        ("soup.heat=None", "soup.heat", "`None` is text here, not nothing (command line)", ()),
        ("soup.cook=None", "soup.cook", "`None` is text here, not nothing (command line)", ()),
        ("kitchen.open=true", "kitchen.open", "a fact, found on the host and not chosen", ()),
        ("plate.form=deep", "plate.form", "derived by rules and not chosen", ()),
        ("assume.kitchen.opn=true", "assume.kitchen.opn", "no such fact", ("assume.kitchen.open",)),
        ("assume.kitchen.open=maybe", "assume.kitchen.open", "`maybe` is not among `false`, `true`", ()),
        ("assume.kitchen.cooks=-1", "assume.kitchen.cooks", "`-1` is not a whole number of at least 0", ()),
        ("assume.device=h10", "assume.device=h10", "no card of this name is known", ("assume.device=h100",)),
        ("budget=24g", "budget.bytes", "`24g` is ambiguous; write `24gib` (2^30 bytes each) or `24gb`", ()),
        ("budget=24", "budget.bytes", "`24` has no unit, and 24 bytes cannot be meant; write `24gib`", ()),
        ("budget=lots", "budget.bytes", "`lots` is no size; write it as `24gib`", ()),
        ("budget=3xib", "budget.bytes", "`xib` is no unit of size", ()),
        ("soup.labels={_target_: os.system}", "soup.labels={_target_: os.system}", "`_target_` is refused", ()),
        ("+soup._target_=os.system", "soup._target_", "`_target_` is refused", ()),
        ("hydra.launcher._target_=x", "hydra.launcher._target_=x", "`_target_` is refused", ()),
        ("hydra.run.dir=x", "hydra.run.dir=x", "nothing reads this in a single run", ()),
        ("hydra.foo=1", "hydra.foo", "key 'foo' not in 'HydraConf'", ()),
        ("hydra/launcher=nope", "hydra/launcher", "`hydra/launcher` has no `nope`", ()),
        ("hydra.searchpath=[/nowhere]", "hydra.searchpath", "no such folder: `/nowhere`", ()),
        ("soup", "soup", "no override; write `key=value`", ()),
        ("=hot", "=hot", "no override; write `key=value`", ()),
        ("~", "~", "no override; write `key=value`", ()),
        ("soup.cook=${oc.env:NO_SUCH_COOK}", "soup.cook", "the environment variable `NO_SUCH_COOK` is not set", ()),
        ("soup.cook=${soup.depth}", "soup.cook", "`${soup.depth}` stands for what you chose for `soup.depth`", ()),
        ("soup.cook=a b, c", "soup.cook=a b, c", "several values, and this is one run", ()),
        ("soup.cook=(", "soup.cook=(", "cannot be read", ()),
    ],
)
def test_a_fault_is_named(order, override, key, said, nearest):
    with pytest.raises(RequestError) as caught:
        order(override)
    (problem,) = caught.value.problems
    assert problem.key == key
    assert said in problem.text
    assert nearest is KEEP or problem.nearest == nearest


def test_all_faults_are_told_at_once(order, with_file):
    """Those of the command line and those of the files, each once."""
    folder = with_file("experiment/odd.yaml", "# @package _global_\nsoup:\n  dept: 3\nbred: 1\n")
    with pytest.raises(RequestError) as caught:
        order("experiment=odd", "soup.kinds=hot", "soup=hott", "budget=24g", folder=folder)
    assert [p.key for p in caught.value.problems] == ["soup.kinds", "soup=hott", "budget.bytes", "soup.dept", "bred"]


@pytest.mark.parametrize(
    ("text", "key", "said", "nearest"),
    [
        ("soup:\n  dept: 3\n", "soup.dept", "no such option (conf/experiment/x.yaml:3)", ("soup.depth",)),
        (
            "bread:\n  depth: 3\n",
            "bread.depth",
            "(conf/experiment/x.yaml:3): `depth` belongs to `soup`",
            ("soup.depth",),
        ),
        ("soup: hot\n", "soup", "a config group, set as if it were an option (conf/experiment/x.yaml:2)", ()),
        ("a:\n  b:\n    _target_: os.system\n", "a.b._target_", "`_target_` is refused (conf/experiment/x.yaml:4)", ()),
        ("hydra:\n  launcher:\n    _target_: x\n", "hydra._target_", "`_target_` is refused", ()),
        ("kitchen:\n  open: true\n", "kitchen.open", "a fact, found on the host and not chosen", ()),
        ("soup:\n  depth: None\n", "soup.depth", "`None` is text here", ()),
        (
            "soup:\n  depth: ${nowhere}\n",
            "soup.depth",
            "`${nowhere}` stands for another option, and there is no `nowhere`",
            (),
        ),
        ("soup:\n  depth: [\n", KEEP, "not valid YAML", ()),
        ("defaults:\n  - override /soup: hott\n", "soup", "`soup` has no `hott` (conf/experiment/x.yaml)", ("hot",)),
        ("defaults:\n  - override /salted: on\n", None, "unsupported item value in defaults : bool", ()),
        ("budget: 24g\n", "budget", "`24g` is ambiguous", ()),
    ],
)
def test_a_fault_in_a_file_is_named_with_its_line(order, with_file, tmp_path, monkeypatch, text, key, said, nearest):
    monkeypatch.chdir(tmp_path)
    folder = with_file("experiment/x.yaml", f"# @package _global_\n{text}")
    with pytest.raises(RequestError) as caught:
        order("experiment=x", folder=folder)
    (problem,) = caught.value.problems
    assert key is KEEP or problem.key in (key, "budget.bytes" if key == "budget" else key)
    assert said in problem.text
    assert problem.nearest == nearest


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_a_preset_without_a_word_is_told(order, with_file, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as caught:
        order("experiment=x", folder=with_file("experiment/x.yaml", text))
    assert str(caught.value) == (
        "`experiment`: this sets nothing (conf/experiment/x.yaml)\n"
        "  begin it with `# @package _global_` and write options below"
    )


def test_a_preset_that_forgot_its_first_line_is_told(order, with_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as caught:
        order("experiment=x", folder=with_file("experiment/x.yaml", "soup:\n  depth: 3\n"))
    assert str(caught.value) == (
        "`experiment.soup.depth`: a preset sets options of other groups, and this is read as its own "
        "(conf/experiment/x.yaml:2)\n  begin the file with `# @package _global_`"
    )


def test_what_a_file_leaves_to_the_user_is_asked_for(order, with_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = with_file("experiment/x.yaml", "# @package _global_\nsoup:\n  depth: ???\n  kind: hot\n")
    with pytest.raises(RequestError) as caught:
        order("experiment=x", folder=folder)
    assert str(caught.value) == (
        "`soup.depth`: conf/experiment/x.yaml:3 leaves the value to you\n"
        "  give it on the command line: `soup.depth=...`"
    )
    assert order("experiment=x", "soup.depth=4", folder=folder).choices["soup.depth"].value == 4


def test_a_group_file_is_checked_like_any_other(order, with_file):
    folder = with_file("soup/warm.yaml", "kind: hot\nheatt: 3\n")
    with pytest.raises(RequestError, match=r"soup\.heatt.*no such option \(command line, .*warm\.yaml:2\)"):
        order("soup=warm", folder=folder)


def test_a_missing_config_folder_is_named(order, tmp_path):
    with pytest.raises(RequestError, match=r"--config-dir.*no such folder"):
        order(folder=tmp_path / "none")
