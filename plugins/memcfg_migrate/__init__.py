"""Coming from another program: its config becomes overrides, and what has no equivalent is listed.

    python -m memcfg from-trl CONFIG.json | CONFIG.yaml | SCRIPT.py
    python -m memcfg from-axolotl CONFIG.yaml
    python -m memcfg from-llamafactory CONFIG.yaml

Files are read, never executed or unpickled, and neither torch nor the other program is imported.
"""

from __future__ import annotations

from memcfg import Plugin

plugin = Plugin(
    name="migrate",
    doc="turns configs of other programs into overrides",
    commands={
        "from-trl": "memcfg_migrate.command:from_trl",
        "from-axolotl": "memcfg_migrate.command:from_axolotl",
        "from-llamafactory": "memcfg_migrate.command:from_llamafactory",
    },
)
