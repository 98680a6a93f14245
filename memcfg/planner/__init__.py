"""Memory before the run: the engine's own build and update on tensors without storage, and what follows from it.

    machine     what a card is like: rates, workspaces, which attention kernel torch picks there
    trace       births and deaths of storages, in order, and the replay of them
    allocator   a model of CUDA's caching allocator
    addresses   where CUDA lays the segments that it is asked for
    hidden      what kernels allocate where no mode sees it; `reductions`: sums over many rows
    tracker     the dispatch mode that sees every storage of a simulated step
    repeats     loops whose rounds do the same: a few are run, the others told from them
    simulate    a plan in, a `Prediction` out
    cores       simulations side by side, in forked processes

This package imports torch only where it simulates; `budget` and `machine` are free of it.
"""

from memcfg.planner.prediction import Prediction

__all__ = ["Prediction"]
