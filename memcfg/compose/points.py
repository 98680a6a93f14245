"""The requests of a sweep's points. What is the same at many points is composed once.

A point differs from its neighbours mostly in techniques: groups whose files set plain values of their own section, and
single options. What these say is laid over the composition of everything else, which is made once for each combination
of the rest (presets, assumptions, files with a defaults list or interpolations). The outcome is that of composing each
point, in a hundredth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memcfg.compose.facts import probe
from memcfg.compose.layers import CHOSEN, COMMAND_LINE, TYPED, Layer
from memcfg.compose.normalise import Line, Normalised, append, normalise
from memcfg.compose.request import choices_of, composed, found, request_of
from memcfg.compose.values import MISSING
from memcfg.compose.vocabulary import ASSUME, PRESETS
from memcfg.errors import RequestError
from memcfg.solver.request import Request

if TYPE_CHECKING:
    from memcfg.compose.tree import Tree
    from memcfg.registry import Registry


class Points:
    """`composed` counts the compositions that were made."""

    def __init__(self, tree: Tree, registry: Registry) -> None:
        self.tree, self.registry = tree, registry
        self.composed = 0
        self._read: dict[str, Normalised] = {}
        self._files: dict[tuple[str, str], Layer | None] = {}
        self._bases: dict[tuple[str, ...], Base | None] = {}

    def request(self, words: Sequence[str]) -> Request:
        """What one point asks for. Raises `RequestError` with every fault."""
        point = self._normalised(words)
        if point.problems:
            raise RequestError(*point.problems)
        over = [line for line in point.lines if self._lies_over(line)]
        rest = [line for line in point.lines if line not in over]
        base = self._base(rest)
        files = [layer for line in over if line.kind == "group" and (layer := self._file(line)) is not None]
        typed = {line.name: line.values[0] for line in over if line.kind == "key"}
        if base is None or not base.takes(files, typed):
            self.composed += 1
            return request_of(self.tree, point, self.registry)
        return self._laid(base, files, typed)

    def _normalised(self, words: Sequence[str]) -> Normalised:
        """All words in their order; each is read once."""
        point = Normalised()
        for word in words:
            if word not in self._read:
                self._read[word] = normalise([word], self.tree)
            read = self._read[word]
            point.problems += read.problems
            for line in read.lines:
                append(line, point, self.tree)
        return point

    def _lies_over(self, line: Line) -> bool:
        """Whether a line can be laid over a composition that was made without it: not what lies inside a mapping, either."""
        if line.kind == "group":
            return line.name not in PRESETS and self._file(line) is not None
        plain = len(line.values) == 1 and not _interpolated(line.values[0]) and line.values[0] != MISSING
        words = self.tree.vocabulary
        return (
            line.kind == "key"
            and plain
            and line.name in words.keys
            and not line.name.startswith(ASSUME)
            and not words.is_mapping(line.name)
        )

    def _file(self, line: Line) -> Layer | None:
        """The file that a line chooses, if it only sets plain values of its own section."""
        if len(line.values) != 1:
            return None
        key = (line.name, str(line.values[0]))
        if key not in self._files:
            self._files[key] = self.tree.plain_file(*key)
        return self._files[key]

    def _base(self, rest: Sequence[Line]) -> Base | None:
        """The composition of these lines; None where they cannot be composed without the others."""
        texts = tuple(line.text for line in rest)
        if texts not in self._bases:
            self._bases[texts] = self._composed(rest)
        return self._bases[texts]

    def _composed(self, rest: Sequence[Line]) -> Base | None:
        self.composed += 1
        try:
            config, layers = composed(self.tree, Normalised(list(rest)))
            return Base(found(config, self.tree.vocabulary), layers, self.tree)
        except RequestError:
            return None

    def _laid(self, base: Base, files: Sequence[Layer], typed: Mapping[str, Any]) -> Request:
        values = dict(base.values)
        for layer in files:
            values.update({key: value for key, value in layer.values.items() if key not in base.typed})
        values.update(typed)
        layers = [*base.below, *files, Layer(COMMAND_LINE, TYPED, {**base.typed, **typed})]
        choices, assumed = choices_of(values, layers, self.tree.vocabulary)
        facts = probe(self.registry, {key: choice.value for key, choice in choices.items()}, skip=assumed)
        return Request(choices=choices, facts={**facts, **assumed}, assumed=tuple(assumed))


class Base:
    """A composition, ready to have techniques laid over it. `below`: its layers without the command line."""

    def __init__(self, values: Mapping[str, Any], layers: Sequence[Layer], tree: Tree) -> None:
        self.values, self.tree = values, tree
        self.below = [layer for layer in layers if layer.rank != TYPED]
        self.typed = {key: value for layer in layers if layer.rank == TYPED for key, value in layer.values.items()}
        self._layers = layers

    @cached_property
    def _plain(self) -> bool:
        """Whether nothing in it looks at other values."""
        return not any(_interpolated(value) for layer in self._layers for value in layer.values.values())

    def takes(self, files: Sequence[Layer], typed: Mapping[str, Any]) -> bool:
        """Whether laying these over it is what composing them together would be: nothing refers to what they set, no
        file of theirs replaces one that a preset chose, no mapping would have to be merged."""
        groups = {layer.path.rpartition("/")[0] for layer in files}
        set_by_files = [key for layer in files for key in layer.values]
        keys = {*set_by_files, *typed}
        if len(set_by_files) != len(set(set_by_files)):
            return False
        for layer in self.below:
            if layer.path.rpartition("/")[0] in groups or (layer.rank == CHOSEN and keys & layer.values.keys()):
                return False
        return self._plain and not any(self.tree.vocabulary.is_mapping(key) for key in keys & self.values.keys())


def _interpolated(value: Any) -> bool:
    """Whether a value, or something in it, is read from elsewhere."""
    if isinstance(value, Mapping):
        return any(_interpolated(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_interpolated(item) for item in value)
    return isinstance(value, str) and "${" in value
