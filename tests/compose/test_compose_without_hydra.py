"""Composing without Hydra's own node gives what composing the whole gives; what names that node is composed whole."""

import pytest
from hydra.types import RunMode
from omegaconf import OmegaConf

from memcfg import RequestError
from memcfg.compose.request import prepare
from memcfg.compose.tree import PRIMARY, _primary


@pytest.fixture
def tree(kitchen_registry, kitchen_folder):
    def made(folder=kitchen_folder):
        return prepare([], kitchen_registry, str(folder))[0]

    return made


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["soup=cold", "soup.depth=3", "++soup.labels.of=x"],
        ["experiment=feast", "bread=wheat"],
        ["experiment=feast", "soup=hot", "~salted"],
        ["soup.spices=[a,'b c']", "soup.heat=1e-3", "soup.cook=null"],
    ],
)
def test_both_ways_are_equal(tree, lines):
    loader = tree().loader
    short = _set(loader.without_hydra(lines)), loader.layers, loader.passed_over
    whole = loader.load_configuration(PRIMARY, list(lines), run_mode=RunMode.RUN, from_shell=False)
    assert "runtime" in whole.hydra
    assert short == (_set(whole), loader.layers, loader.passed_over)


def _set(config):
    """Everything in it but Hydra's node and the options that nothing sets: they are not there where nothing could look for
    them."""
    OmegaConf.set_struct(config, False)
    config.pop("hydra", None)
    return _without_missing(OmegaConf.to_container(config, resolve=True))


def _without_missing(value):
    if not isinstance(value, dict):
        return value
    kept = {key: _without_missing(inside) for key, inside in value.items() if inside != "???"}
    return {key: inside for key, inside in kept.items() if inside != {} or value[key] == {}}


def test_options_that_nothing_sets_are_made_only_for_interpolations(tree, monkeypatch):
    made = []
    monkeypatch.setattr("memcfg.compose.tree._primary", lambda *given: made.append(given) or _primary(*given))
    loader = tree().loader
    assert loader.without_hydra(["soup=cold", "soup.depth=3"]) is not None
    assert made == []
    assert loader.without_hydra(["soup=cold", "bread.slices=${soup.depth}"]) is not None
    assert len(made) == 1


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["hydra.job.name=soup"], ""),
        (["+experiment=odd"], "# @package _global_\nhydra:\n  job:\n    name: soup\n"),
        (["+experiment=odd"], "# @package _global_\nsoup:\n  cook: ${hydra:job.name}\n"),
        (["+experiment=odd"], "# @package _global_\ndefaults:\n  - override /hydra/launcher: basic\n"),
        (["+experiment=odd"], "# @package _global_\ndefaults:\n  - /hydra/launcher: basic\n"),
        (["soup.nonsense=1"], ""),
        (["+experiment=odd"], "soup: [\n"),
    ],
)
def test_what_names_hydra_or_is_wrong_is_composed_whole(tree, with_file, lines, text):
    assert tree(with_file("experiment/odd.yaml", text)).loader.without_hydra(lines) is None


def test_a_fault_in_a_files_hydra_section_is_still_found(order, with_file):
    folder = with_file("experiment/odd.yaml", "# @package _global_\nhydra:\n  jobb: 1\n")
    with pytest.raises(RequestError, match="experiment/odd"):
        order("experiment=odd", folder=folder)
