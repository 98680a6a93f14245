"""Every spelling of a choice means the same, and of two the later counts."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcfg.errors import RequestError

HOT = {"soup.kind": "hot", "soup.heat": 1e-5}
NONE = {"soup.kind": "none"}


@pytest.mark.parametrize(
    ("overrides", "choices"),
    [
        (["soup=hot"], HOT),
        (["+soup=hot"], HOT),
        (["++soup=hot"], HOT),
        (["soup.kind=hot"], {"soup.kind": "hot"}),
        (["+soup.kind=hot"], {"soup.kind": "hot"}),
        (["++soup.kind=hot"], {"soup.kind": "hot"}),
        (["soup={kind: hot, depth: 3}"], {"soup.kind": "hot", "soup.depth": 3}),
        (["soup=none"], NONE),
        (["soup=null"], NONE),
        (["+soup=null"], NONE),
        (["~soup"], NONE),
        (["soup=hot", "~soup"], NONE),
        (["soup.depth=3", "~soup"], {"soup.depth": 3, **NONE}),
        (["salted=on"], {"soup.salted": True}),
        (["salted=true"], {"soup.salted": True}),
        (["salted=false"], {"soup.salted": False}),
        (["salted=null"], {"soup.salted": False}),
        (["salted=none"], {"soup.salted": False}),
        (["bread=rye", "~bread"], {}),
        (["bread=rye", "bread=null"], {}),
        (["bread.slices=3", "~bread"], {}),
        (["soup.depth=3", "~soup.depth"], {}),
        (["soup=cold", "~soup.spices"], {"soup.kind": "cold"}),
        (["~soup.depth"], {}),
        (["soup.kind=auto"], {}),
        (["soup.kind=cold", "soup=hot"], HOT),
        (["soup=hot", "soup.kind=cold"], {"soup.kind": "cold", "soup.heat": 1e-5}),
        (["soup.kind=cold", "soup.depth=3", "soup=hot"], {**HOT, "soup.depth": 3}),
        (["soup.depth=3", "+soup.depth=4"], {"soup.depth": 4}),
        (["soup=cold", "soup=hot"], HOT),
        (["budget=24gib"], {"budget.bytes": 24 * 2**30}),
        (["+budget=24GiB"], {"budget.bytes": 24 * 2**30}),
        (["budget.bytes=80gb"], {"budget.bytes": 80 * 10**9}),
        (["budget=512mib"], {"budget.bytes": 512 * 2**20}),
        (["budget=25769803776"], {"budget.bytes": 24 * 2**30}),
        (["budget=null"], {"budget.bytes": None}),
        (["budget=24gib", "~budget"], {"budget.bytes": None}),
        (["soup.space=1024"], {"soup.space": 1024}),
        (["soup.space=1kib"], {"soup.space": 1024}),
        (["soup.labels.front=yes"], {"soup.labels": {"front": "yes"}}),
        (["soup.labels={front: a}", "+soup.labels.back=b"], {"soup.labels": {"front": "a", "back": "b"}}),
        (["soup.spices=[a,b]"], {"soup.spices": ["a", "b"]}),
        (["soup.cook='a, b'"], {"soup.cook": "a, b"}),
        (["soup.sort=hot"], {"soup.sort": "hot"}),
        (["soup.fat=3"], {"soup.fat": 3}),
    ],
)
def test_a_spelling_means_a_choice(chosen, overrides, choices):
    assert chosen(*overrides) == choices


@pytest.mark.parametrize("text", ["1e-5", "1E-5", "1.0e-5", "1e-05", "0.00001", "1.0E-05"])
@pytest.mark.parametrize("by", ["command line", "file"])
def test_scientific_notation_is_a_number_everywhere(chosen, with_file, text, by):
    if by == "file":
        folder = with_file("experiment/hot.yaml", f"# @package _global_\nsoup:\n  heat: {text}\n")
        value = chosen("experiment=hot", folder=folder)["soup.heat"]
    else:
        value = chosen(f"soup.heat={text}")["soup.heat"]
    assert type(value) is float
    assert value == 1e-5


@pytest.mark.parametrize(
    ("text", "by"), [("null", "command line"), ("~", "command line"), ("null", "file"), ("~", "file"), ("", "file")]
)
def test_null_has_three_words(chosen, with_file, text, by):
    """It is a value where the option has one, `none` where the menu has that, and no choice elsewhere."""
    keys = ("soup.depth", "soup.kind", "soup.salted")
    if by == "file":
        lines = "".join(f"  {key.partition('.')[2]}: {text}\n" for key in keys)
        folder = with_file("experiment/nothing.yaml", f"# @package _global_\nsoup:\n{lines}")
        assert chosen("experiment=nothing", folder=folder) == {"soup.depth": None, "soup.kind": "none"}
    else:
        assert chosen(*(f"{key}={text}" for key in keys)) == {"soup.depth": None, "soup.kind": "none"}


def test_nothing_behind_the_equals_sign_is_null_where_there_is_one_and_a_note_says_so(order):
    found = order("soup.depth=", "soup.kind=''", "soup.cook=")
    assert {key: choice.value for key, choice in found.choices.items()} == {
        "soup.depth": None,
        "soup.kind": "none",
        "soup.cook": None,
    }
    assert [note.text for note in found.notes] == [
        "`soup.depth=` is read as `soup.depth=null`", "`soup.kind=''` is read as `soup.kind=none`",
        "`soup.cook=` is read as `soup.cook=null`",
    ]  # fmt: skip
    assert order("soup.depth=", "soup.depth=3").notes[1:] == (), "of what was replaced nothing is said but that"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (
            "soup.salted=",
            "`soup.salted`: nothing is given (command line)\n  give it a value, or leave it out: `~soup.salted`",
        ),
        (
            "soup.heat=",
            "`soup.heat`: nothing is given (command line)\n  give it a value, or leave it out: `~soup.heat`",
        ),
        (
            "soup.spices=''",
            "`soup.spices`: nothing is given (command line)\n  give it a value, or leave it out: `~soup.spices`",
        ),
        ("soup=", "`soup=`: no name is given; `soup` has `cold`, `hot`, `none`"),
        (
            "assume.kitchen.cooks=",
            "`assume.kitchen.cooks`: nothing is given\n  give it a value, or leave it out: `~assume.kitchen.cooks`",
        ),
    ],
)
def test_nothing_behind_the_equals_sign_is_an_error_where_there_is_no_null(order, said, text):
    with pytest.raises(RequestError) as raised:
        order(said)
    assert str(raised.value) == text


def test_a_later_group_choice_says_what_it_replaces(order):
    notes = [note.text for note in order("soup.kind=cold", "soup=hot").notes]
    assert notes == ["`soup=hot` replaces `soup.kind=cold`, which came before it"]


def test_saying_the_same_twice_is_no_news(order):
    assert order("soup=hot", "+soup=hot").notes == ()


KEYS = {
    "soup.kind": ["hot", "cold", "none"],
    "soup.depth": ["1", "7", "null"],
    "bread.kind": ["rye", "wheat"],
    "bread.slices": ["1", "2"],
}
GROUPS = {"soup": ["hot", "cold", "none", "null"], "bread": ["rye", "wheat"]}
pick = st.sampled_from(sorted(KEYS)).flatmap(lambda k: st.sampled_from(KEYS[k]).map(lambda v: f"{k}={v}"))
choose = st.sampled_from(sorted(GROUPS)).flatmap(lambda g: st.sampled_from(GROUPS[g]).map(lambda v: f"{g}={v}"))
plus = st.sampled_from(["", "+", "++"])
override = st.tuples(plus, pick | choose).map("".join)
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@few
@given(before=st.lists(override, max_size=4), last=pick)
def test_what_is_appended_counts(chosen, before, last):
    """So a repair can be appended to any command."""
    key, _, text = last.partition("=")
    assert chosen(*before, last)[key] == {"null": None}.get(text, int(text) if text.isdigit() else text)


@pytest.mark.slow
@few
@given(st.lists(pick | choose, max_size=4), st.lists(plus, min_size=4, max_size=4))
def test_plus_signs_mean_nothing(chosen, overrides, signs):
    assert chosen(*overrides) == chosen(*(sign + o for sign, o in zip(signs, overrides, strict=False)))


def test_the_package_is_callable_and_a_package():
    import memcfg
    import memcfg.compose as package

    assert memcfg.compose is package
    assert callable(memcfg.compose)
    assert memcfg.compose.compose.__module__ == "memcfg.compose.request"


def test_several_values_are_a_sweep(order):
    with pytest.raises(RequestError, match="add `-m`"):
        order("soup=hot,cold")
