"""How many inputs a fuzzing run tried, and what came of them."""

from __future__ import annotations

from collections import Counter

TALLY: Counter[tuple[str, str]] = Counter()


def count(what: str, came_of_it: str) -> None:
    """Count one input."""
    TALLY[what, came_of_it] += 1


def lines() -> list[str]:
    """Return the tally as a table."""
    names = sorted({what for what, _ in TALLY})
    table = [
        f"{name:28}"
        + "".join(f"{n:10,} {outcome}" for (what, outcome), n in sorted(TALLY.items()) if what == name)
        for name in names
    ]
    return [*table, f"{'inputs in all':28}{sum(TALLY.values()):10,}"] if names else []
