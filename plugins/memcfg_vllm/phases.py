"""What of an engine is awake, and whose weights it holds: the one place that says which call may follow which.

    step             weights before                  weights after      cache
    wake weights     asleep                          empty              asleep
    begin loading    empty, old, current             empty              as it is
    end loading      empty                           current            as it is
    wake cache       current                         current            awake
    generate         current                         current            must be awake
    sleep            any                             asleep             asleep       where the engine sleeps
    sleep            current                         old                as it is     where it does not

Waking what is awake, and sleeping twice, changes nothing. Everything else is refused: nothing is ever generated from weights
that are asleep, empty or of an earlier round. A load that fails leaves the weights empty, so that it must be done again."""

from __future__ import annotations

from memcfg import Problem, RunError

ASLEEP, EMPTY, OLD, CURRENT = "asleep", "empty", "old", "current"
AWAKE = "awake"

SAID = {
    ASLEEP: "its weights are asleep",
    EMPTY: "its weights are not loaded",
    OLD: "its weights are those of an earlier round",
    CURRENT: "its cache is asleep",
}


class Phases:
    """One engine's phase. `sleeps`: whether it gives its weights and cache back between rounds; such an engine is born
    asleep, any other awake and without the run's weights."""

    def __init__(self, *, sleeps: bool) -> None:
        self.sleeps = sleeps
        self.weights, self.cache = (ASLEEP, ASLEEP) if sleeps else (EMPTY, AWAKE)

    def wake_weights(self) -> bool:
        """Whether there is anything to wake."""
        asleep = self.weights == ASLEEP
        if asleep:
            self.weights = EMPTY
        return asleep

    def begin_loading(self) -> None:
        """From here to `end_loading` the weights are nobody's."""
        if self.weights == ASLEEP:
            raise self._refused("to load weights")
        self.weights = EMPTY

    def end_loading(self) -> None:
        if self.weights != EMPTY:
            raise self._refused("to end a load that was not begun")
        self.weights = CURRENT

    def wake_cache(self) -> bool:
        """Whether there is anything to wake. Only once the weights are the current ones: the memory of both is large."""
        if self.weights != CURRENT:
            raise self._refused("to wake its cache")
        asleep, self.cache = self.cache == ASLEEP, AWAKE
        return asleep

    def generate(self) -> None:
        if self.weights != CURRENT or self.cache != AWAKE:
            raise self._refused("to generate")

    def sleep(self) -> bool:
        """Whether there is anything to put to sleep. What was loaded counts no longer, in either case."""
        if not self.sleeps:
            self.weights = OLD if self.weights == CURRENT else self.weights
            return False
        asleep = self.weights == ASLEEP
        self.weights, self.cache = ASLEEP, ASLEEP
        return not asleep

    def changed(self) -> None:
        """The model was trained since its weights were loaded."""
        self.weights = OLD if self.weights == CURRENT else self.weights

    def _refused(self, what: str) -> RunError:
        return RunError(Problem(f"vLLM was asked {what} while {SAID[self.weights]}", key="generation.backend"))
