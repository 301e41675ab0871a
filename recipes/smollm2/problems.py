"""Write additions with three worked examples each, graded from one digit to three: ``python problems.py DIR``.

SmolLM2-135M solves plain few-shot additions of one digit about two times in three and longer ones rarely, so success
rates spread from 0 to 1, as reinforcement learning with verifiable rewards needs.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

EXAMPLES = "Q: 2+5\nA: 7\nQ: 14+3\nA: 17\nQ: 31+42\nA: 73\n"


def problem(rng: random.Random, digits: tuple[int, int]) -> dict[str, str]:
    """Return one addition of numbers with the given digits."""
    a, b = (rng.randrange(10 ** (n - 1) if n > 1 else 1, 10**n) for n in digits)
    return {"prompt": f"{EXAMPLES}Q: {a}+{b}\nA:", "answer": str(a + b)}


def main() -> None:
    """Write train.jsonl and test.jsonl, without duplicates between or within them."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    levels = [(1, 1), (2, 1), (2, 2), (3, 2)]
    drawn: dict[str, dict[str, str]] = {}
    while len(drawn) < 600:
        # There are 81 additions of single digits: 60 of them, then the longer ones.
        item = problem(rng, levels[0] if len(drawn) < 60 else rng.choice(levels[1:]))
        drawn.setdefault(item["prompt"], item)
    items = list(drawn.values())
    rng.shuffle(items)
    for name, part in (("train", items[:500]), ("test", items[500:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(item) + "\n" for item in part))


if __name__ == "__main__":
    main()
