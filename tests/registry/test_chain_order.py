"""In which order a chain runs, given what each implementation consumes and produces."""

import itertools

import pytest

from memcfg import PluginError
from memcfg.registry.order import Link, ordered


def link(text: str) -> Link:
    """`packing: tokens -> rows` is plugin packing, which consumes tokens and produces rows."""
    plugin, _, rest = text.partition(":")
    consumes, _, produces = rest.partition("->")
    return Link(plugin.strip(), frozenset(consumes.split()), frozenset(produces.split()))


SFT, CUT, PACK = "sft: -> tokens", "truncation: tokens -> tokens", "packing: tokens -> rows"


@pytest.mark.parametrize(
    ("links", "order", "because"),
    [
        ([PACK, CUT, SFT], "sft truncation packing", "producer, changer, consumer"),
        ([PACK, SFT], "sft packing", "a consumer waits for its producer"),
        ([PACK, CUT], "truncation packing", "a changer comes before consumers without any producer"),
        (["b:", "a:"], "b a", "nothing orders them: they stay as given"),
        (["late: sft -> ", "sft:"], "sft late", "every implementation produces its plugin's name"),
        (
            [PACK, "shout: tokens truncation -> tokens", CUT, SFT],
            "sft truncation shout packing",
            "a name breaks the tie",
        ),
        (["c: y -> z", "b: x -> y", "a: -> x", "d: z -> "], "a b c d", "a path"),
        (["count: tokens -> count", CUT, SFT], "sft truncation count", "all consumers see the changed thing"),
    ],
)
def test_an_order(links, order, because):
    assert [x.plugin for x in ordered("memcfg_prepare_dataset", [link(t) for t in links])] == order.split(), because


def test_the_order_does_not_depend_on_how_the_links_are_listed():
    links = [link(t) for t in (SFT, CUT, PACK, "shout: tokens truncation -> tokens", "count: rows -> ")]
    orders = {tuple(x.plugin for x in ordered("hook", permuted)) for permuted in itertools.permutations(links)}
    assert orders == {("sft", "truncation", "shout", "packing", "count")}


def test_two_that_change_the_same_thing_must_be_ordered():
    with pytest.raises(PluginError) as error:
        ordered("memcfg_prepare_dataset", [link(t) for t in (SFT, CUT, "shout: tokens -> tokens", PACK)])
    text = str(error.value)
    assert "`truncation` and `shout` both change `tokens`" in text
    assert 'consumes=("tokens", "truncation")' in text


def test_a_path_through_others_orders_two_that_change_the_same_thing():
    links = ["b: x step -> x", "a: x -> x made", "c: made -> step"]
    assert [x.plugin for x in ordered("hook", [link(t) for t in links])] == ["a", "c", "b"]


def test_a_cycle_names_its_members_and_what_binds_them():
    with pytest.raises(PluginError) as error:
        ordered("memcfg_patch_model", [link(t) for t in ("a: y -> x", "b: x -> y", "free:")])
    text = str(error.value)
    assert "`b` runs after `a` (`x`)" in text
    assert "`a` runs after `b` (`y`)" in text
    assert "free" not in text
