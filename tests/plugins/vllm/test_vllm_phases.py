"""Which call may follow which: sequences of steps, and where the first wrong one is refused."""

from __future__ import annotations

import pytest
from memcfg_vllm.phases import Phases

from memcfg import RunError

WAKE, LOAD, CACHE, GENERATE, SLEEP, TRAIN = "wake", "load", "cache", "generate", "sleep", "train"
ROUND = (WAKE, LOAD, CACHE, GENERATE, SLEEP)


def walk(phases: Phases, step: str) -> None:
    if step == LOAD:
        phases.begin_loading()
        phases.end_loading()
        return
    steps = {
        WAKE: phases.wake_weights,
        CACHE: phases.wake_cache,
        GENERATE: phases.generate,
        SLEEP: phases.sleep,
        TRAIN: phases.changed,
        "begin": phases.begin_loading,
        "end": phases.end_loading,
    }
    steps[step]()


def outcome(sleeps: bool, sequence: tuple[str, ...]) -> str:
    """What is said of the first step that is refused, with its place; or what is awake in the end."""
    phases = Phases(sleeps=sleeps)
    for place, step in enumerate(sequence):
        try:
            walk(phases, step)
        except RunError as error:
            return f"{place} {step}: {error.problems[0].text.removeprefix('vLLM was asked ')}"
    return f"weights {phases.weights}, cache {phases.cache}"


ASLEEP = "weights asleep, cache asleep"
LOADED = "weights current, cache awake"


@pytest.mark.parametrize(
    ("given", "then", "because"),
    [
        # an engine that sleeps between rounds
        ((), ASLEEP, "it is born asleep"),
        (ROUND, ASLEEP, "a round ends as it began"),
        (ROUND * 3, ASLEEP, "rounds follow one another"),
        ((WAKE, LOAD, CACHE, GENERATE, GENERATE, GENERATE), LOADED, "a round may generate several times"),
        ((GENERATE,), "0 generate: to generate while its weights are asleep", "nothing was woken"),
        ((WAKE, GENERATE), "1 generate: to generate while its weights are not loaded", "awake weights hold nothing"),
        ((WAKE, CACHE), "1 cache: to wake its cache while its weights are not loaded", "weights come first"),
        ((WAKE, LOAD, GENERATE), "2 generate: to generate while its cache is asleep", "the cache is woken last"),
        ((LOAD,), "0 load: to load weights while its weights are asleep", "there is no memory to load them into"),
        ((*ROUND, GENERATE), "5 generate: to generate while its weights are asleep", "the second generate of a step"),
        (
            (*ROUND, WAKE, CACHE),
            "6 cache: to wake its cache while its weights are not loaded",
            "what slept deeply must be loaded again, though the step is the same",
        ),
        ((*ROUND, WAKE, LOAD, CACHE, GENERATE), LOADED, "the second round of a step, done right"),
        ((WAKE, LOAD, CACHE, TRAIN, GENERATE), "4 generate: to generate while its weights are those of an earlier round", "trained since"),
        ((WAKE, "begin", GENERATE), "2 generate: to generate while its weights are not loaded", "a load half done"),
        ((WAKE, LOAD, "begin", CACHE), "3 cache: to wake its cache while its weights are not loaded", "a second load half done"),
        ((WAKE, "begin", SLEEP), ASLEEP, "after a load that failed it can still sleep"),
        ((WAKE, SLEEP), ASLEEP, "after a wake that was for nothing, too"),
        ((WAKE, WAKE, LOAD, LOAD, CACHE, CACHE, GENERATE), LOADED, "waking and loading twice does no harm"),
        ((SLEEP, SLEEP), ASLEEP, "nor does sleeping twice"),
        ((WAKE, LOAD, "end"), "2 end: to end a load that was not begun while its cache is asleep", "a load ends once"),
    ],
)  # fmt: skip
def test_an_engine_that_sleeps(given: tuple[str, ...], then: str, because: str) -> None:
    assert outcome(True, given) == then, because


@pytest.mark.parametrize(
    ("given", "then", "because"),
    [
        ((), "weights empty, cache awake", "it is awake, and its weights are not the run's"),
        ((GENERATE,), "0 generate: to generate while its weights are not loaded", "the first round loads too"),
        ((LOAD, GENERATE), LOADED, "nothing has to be woken"),
        (ROUND, "weights old, cache awake", "training follows, so what was loaded counts no longer"),
        ((*ROUND, GENERATE), "5 generate: to generate while its weights are those of an earlier round", "no stale weights"),
        (ROUND * 2, "weights old, cache awake", "rounds follow one another"),
        (("begin", SLEEP, GENERATE), "2 generate: to generate while its weights are not loaded", "half a load is none"),
    ],
)  # fmt: skip
def test_an_engine_that_stays_awake(given: tuple[str, ...], then: str, because: str) -> None:
    assert outcome(False, given) == then, because


def test_only_what_is_asleep_is_woken_and_only_what_is_awake_is_put_to_sleep() -> None:
    phases = Phases(sleeps=True)
    assert (phases.sleep(), phases.wake_weights(), phases.wake_weights()) == (False, True, False)
    phases.begin_loading()
    phases.end_loading()
    assert (phases.wake_cache(), phases.wake_cache(), phases.sleep(), phases.sleep()) == (True, False, True, False)
    assert Phases(sleeps=False).sleep() is False
