"""The commands of `memcfg`, one module each. Each has `main(arguments, terminal) -> exit code`.

Modules are imported when their command is called, so that no command pays for another's imports.
"""

from __future__ import annotations

from typing import Final

TRAIN: Final = "train"
"""What runs when no command is named."""

COMMANDS: Final = {
    "train": "compile the request and train (what happens without a command)",
    "resolve": "compile only: print the plan and the reason for every value",
    "explain": "how one value was decided, back to what was typed: `explain OPTION`",
    "why-not": "what stands in the way of a value: `why-not OPTION=VALUE`",
    "diff": "which values differ between two requests or plans, and by which rule",
    "run": "train a plan that was resolved before: `run RUN/resolved.yaml`",
    "report": "the page of a run or a sweep, from its folder: `report RUN`",
    "check": "build a run and prove its first step, without training",
    "predict": "the peak memory of a run, by simulation: needs no GPU, no weights and no data",
    "plan": "which technique sets fit a memory budget, fastest first",
    "calibrate": "measure this host's GPU for the predictions",
    "lint": "faults in the rules of installed plugins: dead values, clashes, defaults in the way",
    "completion": "a shell's completion of all this: `completion bash|zsh|fish`",
    "plugins": "what is installed and what it contributes; `plugins show`, `test`, `trace` and `new`",
}
