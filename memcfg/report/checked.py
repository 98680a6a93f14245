"""What `memcfg check` saw, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcfg.report.words import count, duration, gib, of, wrapped

if TYPE_CHECKING:
    from memcfg.engine.checking import Checked


def checked_text(found: Checked) -> str:
    """The canaries, then every option whose effective value was read back, then loss and peak of the first step."""
    lines = [f"the first step is as planned ({duration(found.seconds)})", "", "canaries"]
    for name, seen in found.canaries.items():
        lines += wrapped(seen, " " * 16, first=f"  {name:<14}")
    lines += ["", f"effective ({count(len(found.effective), 'option')} read back)"]
    for key, entry in found.effective.items():
        lines += wrapped(entry["evidence"], " " * 6, first=f"  {key}={of(key, entry['effective'])}: ")
    lines += ["", *wrapped(f"loss {found.loss:.4f}, peak {gib(found.peak_bytes)} without optimizer states", "  ")]
    return "\n".join(lines)
