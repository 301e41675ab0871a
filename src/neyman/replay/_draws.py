"""The outcomes of rollouts at a recorded visit, drawn from the record."""

from __future__ import annotations

from typing import final

import numpy as np

from neyman._checks import IntP
from neyman.randomness import keyed_hash, keyed_rng
from neyman.replay._trace import Trace

# Of a visit with more trials than this, so many are used: drawn without replacement, the first draws have the same
# law as from all of them.
_MOST = 4096
_ALL = 2**64 - 1

BEYOND = ("neighbours", "refuse")
BEYOND_WORDS = {
    "neighbours": "neighbours: rollouts beyond the recorded trials of a visit were drawn, with replacement, from the "
    "two neighbouring visits of the prompt",
    "refuse": "refuse: rollouts beyond the recorded trials of a visit were refused, and count as failed",
    "static": "static pool: every prompt has one visit; rollouts beyond its recorded trials were drawn from the same "
    "trials again, with replacement",
}


@final
class Draws:
    """The outcomes that a replay can draw, in an order of each visit that the seed decides.

    Within a visit outcomes are drawn without replacement, over all openings of the prompt while that visit is
    current: a strategy that comes back never gets the same rollout twice. Rollouts beyond the recorded trials are
    drawn with replacement from the two neighbouring visits (from the visit itself where there is no other), or
    refused.

    Args:
        trace: the record.
        seed: decides the orders; two strategies under one seed see the same outcomes of a visit in the same
            order.
        beyond: "neighbours" or "refuse".

    Guarantee: the number of successes among the first m <= n draws of a visit is hypergeometric.

    Cost: O(R log R) once, in 1 byte a rollout, and 4 more where tokens are known.
    """

    def __init__(self, trace: Trace, *, seed: int, beyond: str = "neighbours") -> None:
        self._key, self._beyond = keyed_hash(seed, "replay", "beyond"), beyond
        self._first = trace.first.tolist()
        self._prompt = np.repeat(np.arange(trace.prompts), np.diff(trace.first)).tolist()
        rng = keyed_rng(seed, "replay", "order")
        trials, outcomes, tokens = _pool(trace, rng)
        order = np.lexsort((rng.random(len(outcomes)), np.repeat(np.arange(len(trials)), trials)))
        self._outcomes = outcomes[order].tobytes()
        self._tokens = None if tokens is None else tokens[order].tolist()
        self._start = np.concatenate([[0], np.cumsum(trials)]).tolist()
        self._successes = np.add.reduceat(outcomes, self._start[:-1], dtype=np.int64).tolist()
        self._used = [0] * len(trials)
        self._asked_beyond = [0] * len(trials)
        self.beyond = 0

    @property
    def has_tokens(self) -> bool:
        """Whether lengths are known."""
        return self._tokens is not None

    def take(self, visit: int, count: int) -> tuple[bytes, list[int]]:
        """Draw rollouts of a visit.

        Returns:
            Their outcomes (1 or 0) and tokens, both of the same length: ``count``, or fewer where the rest is
            refused.
        """
        start = self._start[visit] + self._used[visit]
        stop = min(start + count, self._start[visit + 1])
        self._used[visit] += stop - start
        outcomes = self._outcomes[start:stop]
        tokens = [0] * (stop - start) if self._tokens is None else self._tokens[start:stop]
        missing = count - (stop - start)
        if missing:
            self.beyond += missing
            if self._beyond == "neighbours":
                more, longer = self._from_neighbours(visit, missing)
                return outcomes + more, tokens + longer
        return outcomes, tokens

    def _from_neighbours(self, visit: int, count: int) -> tuple[bytes, list[int]]:
        low, high = self._first[self._prompt[visit]], self._first[self._prompt[visit] + 1]
        near = [v for v in (visit - 1, visit + 1) if low <= v < high] or [visit]
        sizes = [self._start[v + 1] - self._start[v] for v in near]
        outcomes, tokens, total = bytearray(), [], sum(sizes)
        for _ in range(count):
            serial = self._asked_beyond[visit]
            self._asked_beyond[visit] += 1
            place = _mix(self._key + (visit << 32) + serial) % total
            which = int(place >= sizes[0])
            place += self._start[near[which]] - which * sizes[0]
            outcomes.append(self._outcomes[place])
            tokens.append(0 if self._tokens is None else self._tokens[place])
        return bytes(outcomes), tokens

    def left(self, visit: int) -> tuple[int, int]:
        """Return the successes and the trials of a visit that were not drawn yet."""
        start, used = self._start[visit], self._used[visit]
        drawn = sum(self._outcomes[start : start + used])
        return self._successes[visit] - drawn, self._start[visit + 1] - start - used


def _mix(key: int) -> int:
    """Return 64 bits that depend on every bit of a number: the finaliser of splitmix64, a tenth of a hash's cost."""
    key &= _ALL
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _ALL
    return key ^ (key >> 31)


def _pool(
    trace: Trace, rng: np.random.Generator
) -> tuple[IntP, np.ndarray[tuple[int], np.dtype[np.uint8]], IntP | None]:
    """Lay out every rollout that can be drawn: trials of each visit, outcomes and tokens, visit after visit."""
    if trace.rollout_success is not None:
        return trace.trials, trace.rollout_success, trace.rollout_tokens
    trials, successes = trace.trials, trace.successes
    large = trials > _MOST
    if large.any():
        failures = trials - successes
        successes = np.where(
            large, rng.hypergeometric(successes, failures, np.minimum(trials, _MOST)), successes
        )
        trials = np.minimum(trials, _MOST)
    inside = np.arange(int(trials.sum())) - np.repeat(np.cumsum(trials) - trials, trials)
    outcomes = (inside < np.repeat(successes, trials)).astype(np.uint8)
    if trace.tokens is None:
        return trials, outcomes, None
    visit = np.repeat(np.arange(len(trials)), trials)
    return trials, outcomes, np.rint(trace.tokens[visit, outcomes]).astype(np.int64)
