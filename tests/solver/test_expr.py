"""Expressions are data: they are built by comparing options, and have no truth value of their own."""

import pytest

from memcfg import UNSET, Bool, Enum, Int, key
from memcfg.solver.expr import holds, mentions

packing = Enum("packing.strategy", ("bfd", "wrapped", "none"), doc="how documents share a row")
length = Int("truncation.max_length", doc="longest sequence", unit="tokens", minimum=1, nullable=True)
free = Bool("padding_free.enabled", doc="no padding")


@pytest.mark.parametrize(
    ("expr", "values", "truth"),
    [
        (packing == "bfd", {"packing.strategy": "bfd"}, True),
        (packing != "bfd", {"packing.strategy": "bfd"}, False),
        (packing.isin("bfd", "wrapped"), {"packing.strategy": "none"}, False),
        (packing.unset, {}, True),
        (length.null, {"truncation.max_length": None}, True),
        (length <= 8, {"truncation.max_length": None}, False),
        (length <= 8, {}, False),
        (length > 8, {"truncation.max_length": 9}, True),
        (free.on, {"padding_free.enabled": 1}, False),
        (~free.on & (packing == "bfd"), {"padding_free.enabled": False, "packing.strategy": "bfd"}, True),
        (free.on | key("a.b").isin(UNSET), {}, True),
    ],
)
def test_an_expression_holds_or_not(expr, values, truth):
    assert holds(expr, values) is truth


def test_an_expression_has_no_truth_value():
    with pytest.raises(TypeError, match="no truth value"):
        bool(packing == "bfd")


def test_an_expression_names_what_it_reads():
    assert mentions((packing == "bfd") & (~free.on | (length > 3))) == {
        "packing.strategy",
        "padding_free.enabled",
        "truncation.max_length",
    }
