"""A point of a sweep asks for what it would ask for by itself, though most of it is composed once for all points."""

from itertools import product

import pytest

from memcfg.compose.points import Points
from memcfg.compose.request import compose, prepare
from memcfg.errors import RequestError


@pytest.fixture
def points(kitchen_registry, kitchen_folder):
    tree, _ = prepare([], kitchen_registry, str(kitchen_folder))
    return Points(tree, kitchen_registry)


def same(request, other) -> bool:
    return (request.choices, request.facts, request.assumed) == (other.choices, other.facts, other.assumed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "axes",
    [
        [["soup=hot", "soup=cold", "soup=none"], ["soup.depth=1", "soup.depth=null"], ["bread=rye", "bread=wheat"]],
        [["soup.kind=hot", "soup.kind=none"], ["soup=cold", "soup=none"], ["soup.stock=beef"]],
        [["soup=cold", "soup=hot"], ["soup.kind=none", "~soup.kind"], ["soup.heat=2e-5"]],
        [["experiment=forced", "experiment=feast"], ["soup=hot", "soup=cold"], ["bread=rye"], ["soup.depth=3"]],
        [["experiment=forced"], ["soup.kind=hot", "soup.stock=bean"], ["salted=on", "salted=off"]],
        [["soup=hot", "~soup"], ["salted=on"], ["soup.salted=false", "soup.cook=null"], ["assume.kitchen.cooks=7"]],
        [["soup.labels.front=a"], ["soup.labels.back=b", "soup.labels={front: c}"], ["soup=hot"]],
        [["bread=wheat", "bread=rye"], ["bread.slices=${soup.depth}"], ["soup.depth=1", "soup.depth=2"]],
        [["soup.sort=hot", "soup.sort=cold"], ["budget=1gib", "budget.bytes=2gib"]],
    ],
)
def test_every_point_asks_for_what_it_would_ask_for_alone(points, axes, kitchen_registry, kitchen_folder):
    for words in product(*axes):
        alone = compose(list(words), registry=kitchen_registry, config_dir=str(kitchen_folder))
        assert same(points.request(words), alone), words


def test_what_is_common_is_composed_once(points):
    soups, depths = ("soup=hot", "soup=cold", "soup=none"), tuple(f"soup.depth={n}" for n in range(1, 9))
    for words in product(("experiment=forced", "bread=rye"), ("soup.stock=bean",), depths):
        points.request(words)
    assert points.composed == 2
    for words in product(soups[:1], depths):
        points.request(words)
    assert points.composed == 2  # without a preset there is nothing left to compose: that was done above


def test_faults_of_a_point_are_told_together(points):
    with pytest.raises(RequestError) as caught:
        points.request(("soup=hott", "soup.kinds=1"))
    assert "`soup` has no `hott`" in str(caught.value)
    assert "no such option" in str(caught.value)
