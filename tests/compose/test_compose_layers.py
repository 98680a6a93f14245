"""Where values come from, and which of two wins."""

import pytest

from memcfg import RequestError
from memcfg.compose.layers import Layer, highest, overruled


def test_what_is_typed_comes_from_the_command_line(order):
    assert order("soup.kind=hot").choices["soup.kind"].origin == "command line"


def test_a_group_chosen_on_the_command_line_names_its_file_too(order, kitchen_folder):
    origin = order("soup=hot").choices["soup.kind"].origin
    assert origin == f"command line, {kitchen_folder}/soup/hot.yaml"


def test_files_under_the_working_directory_are_named_from_there(order, kitchen_folder, monkeypatch):
    monkeypatch.chdir(kitchen_folder)
    assert order("experiment=forced").choices["soup.kind"].origin == "experiment/forced.yaml"


def test_a_preset_sets_keys_and_chooses_groups(order, kitchen_folder, monkeypatch):
    monkeypatch.chdir(kitchen_folder)
    choices = order("experiment=feast").choices
    assert {key: (c.value, c.origin) for key, c in choices.items()} == {
        "soup.kind": ("cold", "soup/cold.yaml, chosen by experiment/feast.yaml"),
        "soup.depth": (40, "experiment/feast.yaml"),
        "soup.spices": (["mint"], "experiment/feast.yaml"),
        "bread.slices": (40, "experiment/feast.yaml"),
    }


@pytest.mark.parametrize(
    ("overrides", "spices"),
    [
        (["soup=cold"], ["dill", "salt"]),
        (["experiment=feast"], ["mint"]),
        (["experiment=feast", "soup.spices=[thyme]"], ["thyme"]),
        (["soup.spices=[thyme]", "experiment=feast"], ["thyme"]),
        (["soup=cold", "soup.spices=[]"], []),
    ],
)
def test_a_list_is_replaced_whole(chosen, overrides, spices):
    assert chosen(*overrides)["soup.spices"] == spices


@pytest.mark.parametrize(
    ("overrides", "kind", "note"),
    [
        (["experiment=forced", "soup=hot"], "hot", "`soup.kind` is `hot` (command line, soup/hot.yaml), not `cold` "),
        (["soup=hot", "experiment=forced"], "hot", "`soup.kind` is `hot` (command line, soup/hot.yaml), not `cold` "),
        (["experiment=forced", "soup.kind=hot"], "hot", "`soup.kind` is `hot` (command line), not `cold` "),
        (["soup.kind=hot", "experiment=forced"], "hot", "`soup.kind` is `hot` (command line), not `cold` "),
        (["experiment=feast", "soup=hot"], "hot", "`soup` is `hot` (command line), not `cold` (experiment/feast.yaml)"),
        (["experiment=feast", "~soup"], "none", "`soup` is `none` (command line), not `cold` (experiment/feast.yaml)"),
        (["soup=cold", "soup.kind=hot"], "hot", "`soup.kind` is `hot` (command line), not `cold` "),
        (["experiment=forced", "~soup.kind"], None, "`soup.kind` is left unset (command line), not `cold` "),
    ],
)
def test_the_command_line_wins_with_a_note(order, kitchen_folder, monkeypatch, overrides, kind, note):
    monkeypatch.chdir(kitchen_folder)
    request = order(*overrides)
    choice = request.choices.get("soup.kind")
    assert (choice.value if choice else None) == kind
    assert any(note in n.text for n in request.notes), request.notes


def test_agreement_leaves_no_note(order):
    assert order("experiment=forced", "soup.kind=cold").notes == ()


def test_first_party_files_cannot_be_shadowed(order, with_file):
    """A folder of the user's adds names; the names that memcfg ships keep their meaning, and who tries is told so."""
    folder = with_file("packing/bfd.yaml", "# @package soup\nkind: hot\n")
    with pytest.raises(RequestError) as caught:
        order("soup=hot", folder=folder)
    assert str(caught.value) == (
        f"`{folder}/packing/bfd.yaml`: a config of this name is there already, and none can be replaced\n"
        "  give the file another name, and choose it by that"
    )


def test_groups_are_found_through_hydras_own_search_path(chosen, tmp_path):
    (tmp_path / "soup").mkdir()
    (tmp_path / "soup" / "lukewarm.yaml").write_text("kind: hot\ndepth: 5\n")
    assert chosen("soup=lukewarm", f"hydra.searchpath=[{tmp_path}]") == {"soup.kind": "hot", "soup.depth": 5}
    assert chosen("soup=lukewarm", searchpath=[str(tmp_path)]) == {"soup.kind": "hot", "soup.depth": 5}
    assert chosen("soup=lukewarm", f"hydra.searchpath=[file://{tmp_path}]")["soup.depth"] == 5


def test_hydras_other_options_pass_through(chosen):
    assert chosen("soup=hot", "hydra.verbose=true", "hydra/job_logging=none")["soup.kind"] == "hot"


def test_a_size_may_stand_in_a_file(chosen, with_file):
    folder = with_file("experiment/small.yaml", "# @package _global_\nbudget: 24gib\nsoup:\n  space: 1kib\n")
    assert chosen("experiment=small", folder=folder) == {"budget.bytes": 24 * 2**30, "soup.space": 1024}


LOW = Layer("low.yaml", 0, {"a": 1, "b": 1})
HIGH = Layer("high.yaml", 1, {"a": 2, "b": 1})


def test_the_highest_layer_that_sets_a_key_counts():
    assert highest([LOW, HIGH], "a") is HIGH
    assert highest([LOW, HIGH], "c") is None


def test_only_a_difference_is_overruled():
    assert [n.text for n in overruled([LOW, HIGH])] == ["`a` is `2` (high.yaml), not `1` (low.yaml)"]
