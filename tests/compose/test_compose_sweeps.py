"""Sweeps: every element is normalised like a single choice, and jobs get overrides that compose."""

import pytest

from memcfg.compose.modes import multirun, this_job
from memcfg.compose.request import compose, prepare
from memcfg.errors import RequestError


@pytest.fixture
def sweep(kitchen_registry, kitchen_folder, tmp_path, monkeypatch):
    """The choices of every job of a sweep, composed again from what Hydra hands to the job."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides: str):
        tree, normalised = prepare(list(overrides), kitchen_registry, str(kitchen_folder), sweeps=True)
        if normalised.problems:
            raise RequestError(*normalised.problems)

        def job(config):
            number, task, hydra, folder = this_job()
            request = compose(task, registry=kitchen_registry, config_dir=str(kitchen_folder))
            assert hydra == ["hydra.mode=MULTIRUN"]
            assert folder == str(tmp_path / "multirun" / folder.split("multirun/")[1])
            return number, {key: choice.value for key, choice in request.choices.items()}

        return [ret.return_value for ret in multirun(tree, normalised, job)]

    return run


def kinds(jobs, key="soup.kind"):
    return [choices.get(key) for _, choices in jobs]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("+soup=hot,cold", ["hot", "cold"]),
        pytest.param("soup=hot,null,none", ["hot", "none", "none"], marks=pytest.mark.slow),
        ("++soup.kind=hot,null", ["hot", "none"]),
        pytest.param("soup=choice(cold,hot)", ["cold", "hot"], marks=pytest.mark.slow),
        pytest.param("soup=glob(*)", ["cold", "hot", "none"], marks=pytest.mark.slow),
        ("soup=glob(*,exclude=n*)", ["cold", "hot"]),
    ],
)
def test_each_element_is_a_choice(sweep, override, expected):
    assert kinds(sweep(override)) == expected


@pytest.mark.slow
def test_numbers_sizes_and_products(sweep):
    assert kinds(sweep("soup.depth=range(1,4)"), "soup.depth") == [1, 2, 3]
    assert kinds(sweep("budget=1gib,2gib"), "budget.bytes") == [2**30, 2**31]
    assert kinds(sweep("soup.heat=1e-5,2E-4"), "soup.heat") == [1e-5, 2e-4]
    assert [number for number, _ in sweep("soup=hot,cold", "soup.depth=1,2")] == [0, 1, 2, 3]


@pytest.mark.slow
def test_in_every_job_the_later_spelling_counts(sweep):
    assert kinds(sweep("soup.kind=none", "soup=hot,cold")) == ["hot", "cold"]
    assert kinds(sweep("soup=hot,cold", "soup.kind=none")) == ["none", "none"]


def test_what_is_fixed_reaches_every_job(sweep):
    jobs = sweep("soup.depth=1,2", "~bread", "experiment=forced", "soup.labels.front=a", "~soup.cook")
    assert [c for _, c in jobs] == [
        {"soup.kind": "cold", "soup.depth": n, "soup.labels": {"front": "a"}} for n in (1, 2)
    ]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("soup=hot,hott", "`soup` has no `hott`"),
        ("soup.kinds=hot,cold", "no such option"),
        ("soup.depth=1,None", "`None` is text here"),
        ("budget=1gib,2g", "`2g` is ambiguous"),
        ("bread=rye,null", "`bread` has no file that switches it off"),
    ],
)
def test_an_odd_element_is_refused_before_anything_is_made(sweep, tmp_path, override, said):
    with pytest.raises(RequestError) as caught:
        sweep(override)
    assert said in str(caught.value)
    assert not list(tmp_path.iterdir())
