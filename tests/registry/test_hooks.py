"""The façade: only active plugins are imported; exclusive hooks go to one plugin, chains feed forward."""

import sys
import types

import pytest

from memcfg import Plan, Plugin, PluginError, hookimpl
from memcfg.registry.hooks import SPECS, Hooks
from memcfg.registry.installed import Installed
from memcfg.solver.decision import Decision


@pytest.fixture
def made(monkeypatch):
    """`made(name, **implementations)` is an installed plugin whose hooks module holds these functions."""

    def make(name: str, **implementations):
        module = types.ModuleType(f"hooks_of_{name}")
        for hook, function in implementations.items():
            setattr(module, hook, function)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return Installed(name, f"dist-{name}", "1.0", "", Plugin(name=name, hooks=module.__name__))

    return make


def plan(values: dict | None = None, providers: dict | None = None) -> Plan:
    return Plan({key: Decision(value, "you") for key, value in (values or {}).items()}, providers=providers or {})


def step(name: str, **order):
    @hookimpl(**order)
    def memcfg_prepare_dataset(dataset):
        return [*dataset, name]

    return memcfg_prepare_dataset


def prepare(hooks: Hooks) -> list[str]:
    return hooks.prepare_dataset(plan=hooks.plan, dataset=[], tokenizer=None, ledger=None, split="train")


def test_an_exclusive_hook_goes_to_the_provider_of_the_resolved_value(made):
    def loss(name):
        @hookimpl
        def memcfg_loss(plan):
            return (name, plan["loss.type"])

        return memcfg_loss

    plugins = [made("plain", memcfg_loss=loss("plain")), made("focal", memcfg_loss=loss("focal"))]
    for value, provider in (("nll", "plain"), ("focal", "focal")):
        chosen = plan({"loss.type": value}, {"loss.type": provider})
        assert Hooks(chosen, plugins).loss(plan=chosen) == (provider, value)
        assert Hooks(chosen, plugins).loss() == (provider, value)


def test_an_exclusive_hook_may_give_none(made):
    @hookimpl
    def memcfg_load_dataset(split):
        return None

    chosen = plan({"data.source": "stdlib"}, {"data.source": "data"})
    assert (
        Hooks(chosen, [made("data", memcfg_load_dataset=memcfg_load_dataset)]).load_dataset(split="eval", ledger=None)
        is None
    )


@pytest.mark.parametrize(
    ("values", "providers", "message"),
    [
        (
            {"generation.backend": "vllm"},
            {"generation.backend": "vllm"},
            "`generation.backend=vllm` is provided by plugin `vllm`, which implements no `memcfg_generate`",
        ),
        ({"generation.backend": "vllm"}, {}, "no installed plugin implements `generation.backend=vllm`"),
        ({}, {}, "nothing sets `generation.backend`, so no plugin answers `memcfg_generate`"),
    ],
)
def test_a_missing_implementation_says_what_value_and_which_plugin(made, values, providers, message):
    hooks = Hooks(plan(values, providers), [made("vllm")])
    with pytest.raises(PluginError) as error:
        hooks.generate(model=None, tokenizer=None)
    assert message in str(error.value)


def test_a_chain_feeds_forward_in_the_declared_order(made):
    plugins = [
        made("packing", memcfg_prepare_dataset=step("packing", consumes="tokens", produces="rows")),
        made("sft", memcfg_prepare_dataset=step("sft", produces="tokens")),
        made("truncation", memcfg_prepare_dataset=step("truncation", consumes="tokens", produces="tokens")),
    ]
    for listed in (plugins, plugins[::-1]):
        hooks = Hooks(plan(), listed)
        assert prepare(hooks) == ["sft", "truncation", "packing"]
        assert hooks.implementers("prepare_dataset") == ("sft", "truncation", "packing")


def test_a_chain_without_implementers_gives_back_what_came_in(made):
    assert prepare(Hooks(plan(), [])) == []


def test_a_chain_that_cannot_be_ordered_is_refused_before_anything_is_called(made):
    changes = {"consumes": "tokens", "produces": "tokens"}
    plugins = [made(n, memcfg_prepare_dataset=step(n, **changes)) for n in ("a", "b")]
    with pytest.raises(PluginError, match="`a` and `b` both change `tokens`"):
        Hooks(plan(), plugins)


def test_a_chain_feeds_the_parameter_that_its_slot_names(made):
    @hookimpl
    def memcfg_step_context(model, contexts):
        return [*contexts, model]

    hooks = Hooks(plan(), [made("a", memcfg_step_context=memcfg_step_context)])
    assert hooks.step_context(model="m", contexts=[1]) == [1, "m"]


def test_an_implementation_that_forgets_to_return_is_named(made):
    @hookimpl
    def memcfg_patch_model(model):
        model.append("patched")

    with pytest.raises(PluginError) as error:
        Hooks(plan(), [made("forgetful", memcfg_patch_model=memcfg_patch_model)]).patch_model(model=[])
    assert "forgetful (dist-forgetful)" in str(error.value)
    assert "must return `model`" in str(error.value)


def test_what_an_implementation_raises_passes_through_and_names_the_plugin(made):
    @hookimpl
    def memcfg_patch_model(model):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as error:
        Hooks(plan(), [made("rash", memcfg_patch_model=memcfg_patch_model)]).patch_model(model=[])
    assert error.value.__notes__ == ["raised in `memcfg_patch_model` of plugin `rash` (dist-rash 1.0)"]


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        ("memcfg_los", lambda plan: 1, "there is no hook `memcfg_los`; did you mean `memcfg_loss`?"),
        ("memcfg_loss", lambda plan, gamma: 1, "its hooks do not fit"),
    ],
)
def test_a_hook_that_does_not_exist_or_fit_is_refused(made, name, function, message):
    with pytest.raises(PluginError) as error:
        Hooks(plan(), [made("odd", **{name: hookimpl(function)})])
    assert message in str(error.value)


@pytest.mark.parametrize("arguments", [{}, {"model": 1, "colour": 2}])
def test_a_call_is_checked_as_a_function_call(made, arguments):
    with pytest.raises(TypeError):
        Hooks(plan(), []).patch_model(**arguments)


def test_a_hook_that_does_not_exist_is_no_attribute():
    with pytest.raises(AttributeError, match="there is no hook `memcfg_teleport`"):
        Hooks(plan(), []).teleport  # noqa: B018
    assert {name.removeprefix("memcfg_") for name in SPECS} <= set(dir(Hooks(plan(), [])))


def test_calls_are_recorded(made):
    hooks = Hooks(plan(), [made(n, memcfg_prepare_dataset=step(n)) for n in ("a", "b")])
    prepare(hooks)
    assert [(call.hook, call.plugin) for call in hooks.calls] == [("memcfg_prepare_dataset", n) for n in ("a", "b")]
    assert all(call.ms >= 0 for call in hooks.calls)


def test_a_hooks_module_that_cannot_be_imported_is_reported_with_its_traceback(tmp_path, monkeypatch):
    (tmp_path / "acme_bad_hooks.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    acme = Installed("acme", "dist-acme", "1.0", "", Plugin(name="acme", hooks="acme_bad_hooks"))
    with pytest.raises(PluginError) as error:
        Hooks(plan(), [acme])
    assert "acme (dist-acme)" in str(error.value)
    assert "its hooks `acme_bad_hooks` cannot be imported: ModuleNotFoundError" in str(error.value)
    assert "acme_bad_hooks.py" in error.value.trace


def test_every_hook_has_a_slot_and_a_docstring():
    for name, spec in SPECS.items():
        parameters = spec.__code__.co_varnames[: spec.__code__.co_argcount]
        assert parameters[0] == "plan", name
        assert spec.__doc__, name
        assert (spec.memcfg_slot.selector is None) != (spec.memcfg_slot.feeds is None), name
        assert spec.memcfg_slot.feeds is None or spec.memcfg_slot.feeds in parameters, name
