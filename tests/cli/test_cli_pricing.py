"""What repairs of a conflict would need."""

import json
import re

import pytest

from memcfg.errors import Conflict, ConflictError, Price
from memcfg.report.errors import error_text

CONFLICT = ("packing=bfd", "truncation.max_length=null", "model.hidden=64", "model.layers=1", "assume.device=h100")


def test_prices_stand_beside_repairs_as_comments_that_a_shell_passes_over(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    error = ConflictError(
        [Conflict(("a.b",), ("a.rule",), "you chose `a.b=1`")], [["a.b=2"], ["a.b=3", "c.d=long_name"]]
    )
    plain = error_text(error)
    error.prices = (
        Price(3 << 29, "h100", "fits"),
        Price(None, reason="`a.b`: without a longest row there is no largest one"),
    )
    assert plain.endswith("  to repair it, append one of\n    a.b=2\n    a.b=3 c.d=long_name")
    assert error_text(error).endswith(
        "  to repair it, append one of\n"
        "    a.b=2                # 1.50 GiB on h100, fits\n"
        "    a.b=3 c.d=long_name\n"
        "      # not known: `a.b`: without a longest row there is no largest one"
    )


@pytest.mark.torch
@pytest.mark.parametrize("words", [("predict",), ("plan",), ("resolve", "--price")])
def test_commands_that_know_memory_price_repairs(memcfg, tmp_path, monkeypatch, words):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code, out, _ = memcfg(*words, "--json", *CONFLICT)
    found = json.loads(out)
    assert code == 2
    assert found["repairs"] == [["packing.strategy=none"], ["truncation.max_length=1024"]]
    unknown, known = found["prices"]
    assert unknown["needed_bytes"] is None
    assert unknown["reason"].startswith("`truncation.max_length`: without a longest row")
    assert known["needed_bytes"] > 800 << 20
    assert (known["machine"], known["verdict"]) == ("h100", "fits")


@pytest.mark.torch
def test_a_request_that_holds_is_priced_too(memcfg, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ("resolve", "--price", *CONFLICT[2:])
    code, out, _ = memcfg(*words)
    assert code == 0
    assert re.search(r"^one step: [\d.]+ (MiB|GiB) on h100, fits$", out, re.MULTILINE)
    data = json.loads(memcfg(*words, "--json")[1])
    assert (data["ok"], data["price"]["machine"]) == (True, "h100")


def test_without_being_asked_resolving_prices_nothing(memcfg):
    assert "prices" not in json.loads(memcfg("resolve", "--json", *CONFLICT)[1])


@pytest.mark.torch
def test_a_repair_that_fails_to_be_priced_does_not_hide_the_conflict(memcfg, monkeypatch):
    def fails(*_, **__):
        raise ValueError

    monkeypatch.setattr("memcfg.commands.pricing.price", fails)
    code, out, _ = memcfg("predict", "--json", *CONFLICT)
    found = json.loads(out)
    assert code == 2
    assert found["repairs"] == [["packing.strategy=none"], ["truncation.max_length=1024"]]
    assert [price["reason"] for price in found["prices"]] == ["ValueError"] * 2


def test_where_there_are_very_many_repairs_none_is_simulated(memcfg):
    """All names of a menu: simulating some of them would take half a minute and say nothing of the others."""
    code, _, err = memcfg("predict", "model=shape", "assume.device=h100")
    assert code == 2
    assert "repairs are not simulated (at most 8 are): `predict` says what one needs" in err
    assert "    model.preset=qwen3-0.6b\n" in err
    assert "prices" not in json.loads(memcfg("predict", "--json", "model=shape", "assume.device=h100")[1])
