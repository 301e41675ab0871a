"""The yield of early verdicts over the steps, and whether they pay for these prompts."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import final

from neyman.errors import StateError
from neyman.rules.audit import Audit

_logger = logging.getLogger("neyman")

_DECAY = 0.9  # of everything observed, per step
_ENOUGH = 64.0  # audited groups before the yield condition is believed
_SURE = 3.0  # standard errors by which the condition must fail before a warning
_ROUNDING = 1e-9
_FIELDS = ("decided", "committed", "audited", "found", "effective", "variance", "stopped", "given_up")


@final
class Yield:
    """Decayed counts of the groups that verdicts found and missed.

    Two shares matter: of opened groups that commit (how wide a wave must be), and of groups that would be mixed
    at full size, estimated by the audit.
    """

    def __init__(self) -> None:
        self._seen = dict.fromkeys(_FIELDS, 0.0)
        self._has_warned = False

    def advance(self) -> None:
        """Let a step pass."""
        for name in _FIELDS:
            self._seen[name] *= _DECAY

    def decide(self, *, committed: bool) -> None:
        """Count one verdict."""
        self._seen["decided"] += 1.0
        self._seen["committed"] += committed

    @property
    def rate(self) -> float:
        """The observed share of opened groups that commit, shrunk towards 1/2."""
        return (self._seen["committed"] + 1.0) / (self._seen["decided"] + 2.0)

    def add(self, finding: Audit) -> None:
        """Count the findings of a step's audit."""
        self._seen["audited"] += finding.judged
        self._seen["found"] += finding.committed
        self._seen["given_up"] += finding.judged - finding.committed
        for name in ("effective", "variance", "stopped"):
            self._seen[name] += getattr(finding, name)

    def margin(self, size: int, *, errors: float = 0.0) -> float:
        """Return odds(f')/odds(f) k/n, by which early verdicts beat full groups at equal budget; below 1 they lose.

        f is the share of groups mixed at full size k, f' the share found mixed by verdicts, n the mean rollouts of
        a group given up (docs/methods.md). 1 where nothing was given up, or nothing can be mixed. f is taken smaller by
        so many standard errors of the audit.
        """
        seen = self._seen
        if not seen["given_up"] or not seen["found"]:
            return 1.0
        effective = max(seen["found"], seen["effective"] - errors * math.sqrt(seen["variance"]))
        # Shrunk alike by one group of each kind, so that shares of 0 and 1 have finite odds.
        found = (seen["found"] + 1.0) / (seen["given_up"] + 1.0)
        full = (effective + 1.0) / (max(seen["audited"] - effective, 0.0) + 1.0)
        return found / full * size * seen["given_up"] / seen["stopped"]

    def warn(self, size: int) -> None:
        """Warn once that early verdicts do not pay, when that is beyond the error of the audit."""
        fails = self._seen["audited"] >= _ENOUGH and self.margin(size, errors=_SURE) < 1.0 - _ROUNDING
        if fails and not self._has_warned:
            seen = self._seen
            _logger.warning(
                "early verdicts cost more than they save on these prompts: about %.0f%% of the groups would be mixed "
                "at full size and %.0f%% were found by verdicts that gave up after %.1f of %d rollouts (yield margin "
                "%.2f < 1); use a lower threshold, a longer probe, or preset('dynamic-sampling')",
                100 * min(1.0, seen["effective"] / seen["audited"]),
                100 * seen["found"] / seen["audited"],
                seen["stopped"] / seen["given_up"],
                size,
                self.margin(size),
            )
        self._has_warned = fails

    def state_dict(self) -> dict[str, float]:
        """Return the observed counts, JSON-safe."""
        return {**self._seen, "has_warned": self._has_warned}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore the observed counts; missing or unknown keys are a `StateError`."""
        if set(state) != {*_FIELDS, "has_warned"}:
            raise StateError(f"the yield state must have the keys {sorted(_FIELDS)}, got {sorted(state)}")
        self._seen = {name: float(state[name]) for name in _FIELDS}
        self._has_warned = bool(state["has_warned"])
