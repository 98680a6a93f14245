"""What `docs/plugins.md` tells authors is tried as it stands there."""

import re
from pathlib import Path

import pytest

from memcfg.registry.hooks import SPECS

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
DECLARATION, HOOKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]
LOSS = "class PowerLoss:\n    def __init__(self, power):\n        self.power = power\n"


@pytest.fixture
def acme(site):
    entry = re.search(r"\[project\.entry-points\.memcfg\]\n(.*?)\n```", PAGE, re.DOTALL).group(1).replace('"', "")
    files = {"acme/__init__.py": DECLARATION, "acme/hooks.py": HOOKS, "acme/loss.py": LOSS}
    site.add("acme-loss", files, entry)
    return site


@pytest.mark.torch  # hooks of the plan bring it
def test_the_plugin_of_the_page_works(acme, warm_python):
    code = """
        import sys
        import memcfg
        from memcfg.registry import load
        plain = memcfg.resolve([])
        unused = "acme.hooks" in sys.modules or "acme" in plain.active
        plan = memcfg.resolve(["loss.type=acme", "acme.power=3"])
        result = [unused, load().hooks(plan).loss(plan=plan).power]
    """
    assert acme.seen_by(warm_python).run(code) == [False, 3.0]


def test_the_plugin_of_the_page_refuses_what_it_says(acme):
    refused = acme.cli("resolve", "acme.power=3")
    assert refused.returncode == 2
    assert "only the acme loss has a power" in " ".join(refused.stdout.split() + refused.stderr.split())


def test_the_page_names_no_hook_that_does_not_exist():
    named = set(re.findall(r"\bmemcfg_[a-z_]+\b", PAGE)) - {"memcfg_local"}
    assert named - {"memcfg_focal"} <= set(SPECS)


def test_the_page_names_every_kind_of_rule():
    import memcfg
    from memcfg.solver.rules import Rule

    kinds = {name for name, kind in vars(memcfg).items() if isinstance(kind, type) and issubclass(kind, Rule)}
    assert {k for k in kinds - {"Rule"} if f"`{k}" not in PAGE} == set()
