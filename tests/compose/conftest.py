"""A small world to compose in: a kitchen plugin, and a folder of its config groups."""

from pathlib import Path

import pytest

from memcfg import Bool, Default, Enum, Fact, Int, Plugin, RemovedKey, RenameKey, Setting
from memcfg.registry import load

SOUP = Plugin(
    name="soup",
    options=[
        Enum("soup.kind", ("hot", "cold", "none"), doc="which soup"),
        Int("soup.depth", doc="how deep the plate is", unit="mm", minimum=1, nullable=True),
        Bool("soup.salted", doc="whether there is salt in it"),
        Enum("soup.stock", ("beef", "bean"), doc="what it is made from", open=True),
        Setting("soup.spices", list, doc="what else is in it"),
        Setting("soup.labels", dict, doc="what is written on the plate"),
        Setting("soup.heat", float, doc="how hot", minimum=0.0),
        Setting("soup.space", int, doc="room that it takes", unit="bytes"),
        Setting("soup.cook", str, doc="who makes it", nullable=True),
        Setting("bread.slices", int, doc="bread beside it"),
        Enum("bread.kind", ("rye", "wheat"), doc="which bread"),
        Fact("kitchen.open", probe="kitchen_probe:is_open", doc="whether the kitchen is open"),
        Fact("kitchen.cooks", probe="kitchen_probe:cooks", values=None, minimum=0, doc="how many cooks there are"),
        Enum("plate.form", ("flat", "deep"), doc="derived", role="derived"),
    ],
    rules=[
        Default("soup.kind", "none", id="soup.kind.default", because="nobody has to eat soup"),
        RenameKey("soup.sort", "soup.kind", id="soup.kind.renamed", because="it is called kind now"),
        RemovedKey("soup.fat", advice="leave it out", id="soup.fat.removed", because="fat is out"),
    ],
    groups={"soup": "what is eaten first"},
)

FILES = {
    "soup/hot.yaml": "kind: hot\nheat: 1e-5\n",
    "soup/cold.yaml": "kind: cold\nspices: [dill, salt]\n",
    "soup/none.yaml": "kind: none\n",
    "bread/rye.yaml": "kind: rye\n",
    "bread/wheat.yaml": "kind: wheat\nslices: 3\n",
    "salted/on.yaml": "# @package soup\nsalted: true\n",
    "salted/off.yaml": "# @package soup\nsalted: false\n",
    "experiment/feast.yaml": (
        "# @package _global_\ndefaults:\n  - override /soup: cold\n"
        "soup:\n  depth: 40\n  spices: [mint]\nbread:\n  slices: ${soup.depth}\n"
    ),
    "experiment/forced.yaml": "# @package _global_\nsoup:\n  kind: cold\n",
}


@pytest.fixture(scope="session")
def kitchen_registry(tmp_path_factory: pytest.TempPathFactory):
    """core and the soup plugin, with probes that answer from the request."""
    import sys

    folder = tmp_path_factory.mktemp("probes")
    (folder / "kitchen_probe.py").write_text(
        "def is_open(choices):\n    return choices.get('soup.kind') != 'none'\n\n\ndef cooks(choices):\n    return 2\n"
    )
    sys.path.insert(0, str(folder))
    yield load(discover=False, extra=[SOUP])
    sys.path.remove(str(folder))
    sys.modules.pop("kitchen_probe", None)


@pytest.fixture(scope="session")
def kitchen_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kitchen")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def order(kitchen_registry, kitchen_folder):
    """Compose a request: `order("soup=hot", ...)`; `files={...}` adds config files of its own."""
    import memcfg

    def composed(*overrides: str, folder: Path = kitchen_folder, **more):
        return memcfg.compose(list(overrides), registry=kitchen_registry, config_dir=str(folder), **more)

    return composed


@pytest.fixture
def chosen(order):
    """The values that a request chooses, by key."""

    def values(*overrides: str, **more):
        return {key: choice.value for key, choice in order(*overrides, **more).choices.items()}

    return values


@pytest.fixture
def with_file(tmp_path, kitchen_folder):
    """A config folder like the kitchen's with one more file: `with_file("experiment/x.yaml", text)`."""
    import shutil

    def folder(name: str, text: str) -> Path:
        target = tmp_path / "conf"
        shutil.copytree(kitchen_folder, target, dirs_exist_ok=True)
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_text(text)
        return target

    return folder
