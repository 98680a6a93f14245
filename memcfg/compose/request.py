"""From overrides and files to a `Request`: what the user chose, where each choice comes from, and the facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memcfg.compose.cards import card_facts
from memcfg.compose.facts import probe, stated
from memcfg.compose.layers import COMMAND_LINE, TYPED, Layer, highest, overruled
from memcfg.compose.normalise import Normalised, hydra_searchpath, normalise
from memcfg.compose.spelling import nearest
from memcfg.compose.translate import refusing
from memcfg.compose.tree import Tree
from memcfg.compose.values import MISSING, calls_code, meaning
from memcfg.compose.vocabulary import ASSUME, CARD, SHORT, Vocabulary
from memcfg.errors import Problem, RequestError
from memcfg.solver.expr import UNSET, Option, same
from memcfg.solver.request import Choice, Request

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from memcfg.plan import Plan
    from memcfg.registry import Registry


def compose(
    overrides: Sequence[str] = (), *, registry: Registry | None = None, config_dir: str | None = None,
    searchpath: Sequence[str] = (),
) -> Request:  # fmt: skip
    """What these overrides ask for, with the facts of this host.

    `config_dir` and `searchpath` are folders of further config groups. Raises `RequestError` with every fault at once:
    unknown or misplaced keys and names, wrong notation, files that cannot be composed; `PluginError` where a plugin
    that is broken would have known the key, or where a probe fails."""
    registry = registry or installed()
    typed: dict[str, Any] = {}
    try:
        tree, normalised = prepare(overrides, registry, config_dir, searchpath)
        typed = normalised.typed()
        return request_of(tree, normalised, registry)
    except RequestError as error:
        raise registry.explained(error, typed) from error.__cause__


def resolve(
    what: Request | Sequence[str] = (), *, registry: Registry | None = None, config_dir: str | None = None,
    searchpath: Sequence[str] = (),
) -> Plan:  # fmt: skip
    """The plan for a request or for overrides. Raises as `compose` does, and `ConflictError`."""
    registry = registry or installed()
    if not isinstance(what, Request):
        what = compose(what, registry=registry, config_dir=config_dir, searchpath=searchpath)
    return registry.plan(what)


def installed() -> Registry:
    from memcfg.registry import load

    return load()


def prepare(
    overrides: Sequence[str], registry: Registry, config_dir: str | None = None, searchpath: Sequence[str] = (),
    sweeps: bool = False,
) -> tuple[Tree, Normalised]:  # fmt: skip
    """The config folders in sight and the normalised overrides."""
    folders, rest = hydra_searchpath(overrides)
    words = Vocabulary.of(registry.options, registry.theory.rules)
    tree = Tree(words, registry.conf_paths(), config_dir, [*searchpath, *folders])
    return tree, normalise(rest, tree, sweeps)


def request_of(tree: Tree, normalised: Normalised, registry: Registry) -> Request:
    """What normalised overrides ask for. Raises as `compose` does."""
    config, layers = composed(tree, normalised)
    values = found(config, tree.vocabulary)
    unanswered = [_unanswered(key, layer) for layer in layers for key in layer.asks if key not in values]
    if unanswered:
        raise RequestError(*unanswered)
    choices, assumed = choices_of(values, layers, tree.vocabulary)
    chosen = {key: choice.value for key, choice in choices.items()}
    facts = probe(registry, chosen, skip=assumed)
    notes = (*normalised.notes, *tree.loader.passed_over, *overruled(layers))
    return Request(choices, {**facts, **assumed}, tuple(assumed), notes, stated=stated(registry, chosen, facts))


def composed(tree: Tree, normalised: Normalised) -> tuple[DictConfig, list[Layer]]:
    """Hydra's composition, checked: all faults of the command line and of the files are raised together."""
    problems = [*normalised.problems, *_unread(normalised)]
    try:
        config, layers = tree.compose(normalised.texts)
    except RequestError as error:
        files = check(tree.loader.layers, tree)
        raise RequestError(*problems, *(files or error.problems)) from error.__cause__
    problems.extend(check(layers, tree))
    if problems:
        raise RequestError(*dict.fromkeys(problems))
    return config, [*layers, Layer(COMMAND_LINE, TYPED, normalised.typed())]


def _unread(normalised: Normalised) -> list[Problem]:
    """Keys of Hydra's that nothing reads in a single run, because memcfg makes its own folder."""
    unread = ("hydra.run.dir", "hydra.output_subdir", "hydra.job.chdir")
    lines = [line for line in normalised.lines if line.kind == "hydra" and line.name in unread]
    return [Problem("nothing reads this in a single run", key=line.said, fix="write `run.dir=...`") for line in lines]


def _unanswered(key: str, layer: Layer) -> Problem:
    text = f"{layer.setting(key)} leaves the value to you"
    return Problem(text, key=key, fix=f"give it on the command line: `{key}=...`")


def check(layers: Sequence[Layer], tree: Tree) -> list[Problem]:
    """What is wrong with the keys that files set."""
    found = []
    for layer in layers:
        for path, value in layer.values.items():
            if _wrong(path, value, layer.origin, tree) is not None:
                found.append(_wrong(path, value, layer.setting(path), tree))  # only now is the line worth looking for
    return [problem for problem in found if problem is not None]


def _wrong(path: str, value: Any, origin: str, tree: Tree) -> Problem | None:
    fault = tree.vocabulary.fault(path, value, origin, tree.groups)
    if fault is None and calls_code(value):
        return Problem(f"`_target_` is refused ({origin}): a config names options, it does not call code", key=path)
    return fault


def found(config: DictConfig, words: Vocabulary) -> dict[str, Any]:
    """Everything that is set, in the order of keys, interpolations resolved."""
    from omegaconf import OmegaConf

    values: dict[str, Any] = {}
    for section in [name for name in config if name != "hydra"]:
        with refusing(str(section)):
            value = config[section]
            value = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        values.update(words.leaves({section: value}))
    return {key: value for key, value in sorted(values.items()) if not (isinstance(value, str) and value == MISSING)}


def choices_of(
    values: Mapping[str, Any], layers: Sequence[Layer], words: Vocabulary
) -> tuple[dict[str, Choice], dict[str, Any]]:
    """Choices and assumed facts. Raises `RequestError` with every value that is in a wrong notation."""
    choices: dict[str, Choice] = {}
    assumed: dict[str, Any] = {}
    problems: list[Problem] = []
    for path, raw in values.items():
        layer = highest(layers, path)
        origin = layer.origin if layer is not None else COMMAND_LINE
        try:
            for key, value in _expanded(path, raw).items():
                _choose(key, value, origin, words, choices, assumed)
        except RequestError as error:
            problems.extend(error.problems)
    if problems:
        raise RequestError(*problems)
    return choices, assumed


def _expanded(path: str, value: Any) -> dict[str, Any]:
    if path == CARD:
        return {} if value is None else card_facts(value, f"{path}={value}")
    return {SHORT.get(path, path): value}


def _choose(
    key: str, value: Any, origin: str, words: Vocabulary, choices: dict[str, Choice], assumed: dict[str, Any]
) -> None:
    if key.startswith(ASSUME):
        fact = key.removeprefix(ASSUME)
        if value is not None and fact in words.options:
            assumed[fact] = _assumed(words.options[fact], value, key)
        return
    if key not in words.keys:
        return  # an empty section, or a key that the check above has refused
    value = meaning(key, words.option(key), value, origin)
    if value is not UNSET:
        choices[key] = Choice(value, origin)


def _assumed(fact: Option, value: Any, key: str) -> Any:
    """The value of an assumed fact. Raises `RequestError` where the fact cannot have it."""
    if value == "":
        raise RequestError(Problem("nothing is given", key=key, fix=f"give it a value, or leave it out: `~{key}`"))
    if fact.kind == "int":
        if type(value) is not int or (fact.minimum is not None and value < fact.minimum):
            least = "" if fact.minimum is None else f" of at least {fact.minimum}"
            raise RequestError(Problem(f"`{value}` is not a whole number{least}", key=key))
    elif not any(same(value, other) for other in fact.values):
        menu = tuple(f"{key}={other}" for other in nearest(str(value), map(str, fact.values)))
        text = f"`{value}` is not among {', '.join(f'`{str(v).lower()}`' for v in fact.values)}"
        raise RequestError(Problem(text, key=key, nearest=menu))
    return value
