"""GRESO's belief: the length of each prompt's run of zero-variance groups, and the chance to skip it for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from neyman._checks import FloatP, IntP, prompt_ids, real
from neyman.beliefs._counts import Counts
from neyman.beliefs._families import BetaFamily
from neyman.beliefs._state import check_number
from neyman.beliefs._stored import StoredBelief, WithoutFeatures
from neyman.beliefs._table import PromptTable
from neyman.errors import ArgumentError
from neyman.randomness import PromptId

_COLUMNS: Final[Mapping[str, Any]] = {
    "seen": np.int64,
    "visited": np.int64,
    "easy": np.float64,
    "hard": np.float64,
    "successes": np.int64,
    "trials": np.int64,
}
_LOW, _HIGH, _START = 0.05, 0.95, 0.5  # bounds and start of the two probabilities, as published


@final
class Streaks(BetaFamily, WithoutFeatures, StoredBelief):
    """Trailing runs of zero-variance groups per prompt, beside discounted counts.

    z_easy and z_hard are the lengths of a prompt's trailing run of visits with a success rate of at least ``easy``,
    or at most ``hard``. A prompt is passed over with probability ``1 - max(keep_easy^z_easy, floor)`` and then,
    independently, ``1 - max(keep_hard^z_hard, floor)``. After each step with a revisited prompt, ``keep_hard`` falls
    by ``rate`` if the all-wrong share of the step's groups is at least its target, and rises by ``rate`` otherwise;
    likewise ``keep_easy``. Both start at .5 and stay within [.05, .95].

    Args:
        target: share of zero-variance groups to aim at: a third of it easy, two thirds hard.
        rate: change of the two probabilities per step.
        floor: least chance of a prompt to be tried, in (0, 1].
        easy: least success rate of a visit that counts as all right; the public code has .98 of a reward.
        hard: largest success rate of a visit that counts as all wrong; the public code has .11 of a reward.
        fade: share of a streak's length that a step leaves, in [0, 1]; 1, as published, never forgets.
        discount: of the counts, which serve predictions only; see `Counts`.

    All updates between two calls of ``advance`` are one visit.

    Guarantee: the streaks depend on verified successes alone, whatever the scale of rewards. They do not estimate
    whether a prompt has changed since.
    Cost: as `Counts`, and O(prompts visited) per step.
    Source: GRESO, arXiv 2506.02177, and its public code for the constants. Deviations: thresholds are on success;
    a streak fades; the probabilities adapt once prompts come back, where the code waits for its second epoch.

    >>> belief = Streaks(fade=1.0)
    >>> belief.update(["solved", "mixed"], [8, 4], [8, 8])
    >>> belief.skip_probability(["solved", "mixed", "new"]).tolist()
    [0.5, 0.0, 0.0]
    """

    KIND = "streaks"
    KEYS = ("ids", *_COLUMNS, "keep_easy", "keep_hard", "counts")

    def __init__(
        self,
        *,
        target: float = 0.25,
        rate: float = 0.01,
        floor: float = 0.01,
        easy: float = 1.0,
        hard: float = 0.0,
        fade: float = 0.99,
        discount: float = 0.9,
    ) -> None:
        self._config = {
            "target": real("target", target, low=0.0, high=1.0),
            "rate": real("rate", rate, low=0.0, high=1.0),
            "floor": real("floor", floor, low=0.0, high=1.0, open_low=True),
            "easy": real("easy", easy, low=0.0, high=1.0),
            "hard": real("hard", hard, low=0.0, high=1.0),
            "fade": real("fade", fade, low=0.0, high=1.0),
            "discount": real("discount", discount, low=0.0, high=1.0),
        }
        if hard >= easy:
            raise ArgumentError(
                f"hard must be below easy, or a visit is both: got hard={hard} and easy={easy}; "
                "0 and 1 take all wrong and all right"
            )
        self._counts = Counts(discount=discount, fade=0.999)
        self._keep_easy = self._keep_hard = _START
        self._table = PromptTable(_COLUMNS)

    @property
    def keep_probabilities(self) -> tuple[float, float]:
        """The chances to try a prompt again after one easy visit, and after one hard visit."""
        return self._keep_easy, self._keep_hard

    def streaks(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return z_easy and z_hard per prompt, faded, this step's visits included; 0 where never seen."""
        rows = self._table.find(prompt_ids("ids", ids))
        easy, hard = self._with_visits()
        kept = self._config["fade"] ** self._table.idle(rows, self._clock)
        known, at = rows >= 0, np.maximum(rows, 0)
        if not len(easy):
            return np.zeros(len(rows)), np.zeros(len(rows))
        return np.where(known, easy[at], 0.0) * kept, np.where(known, hard[at], 0.0) * kept

    def skip_probability(self, ids: Sequence[PromptId]) -> FloatP:
        """Return the chance that each prompt is passed over, in [0, 1 - floor^2]."""
        floor = self._config["floor"]
        easy, hard = self.streaks(ids)
        # Two independent draws, one for each kind of run, so the chances to keep the prompt multiply.
        keep = np.maximum(self._keep_easy**easy, floor) * np.maximum(self._keep_hard**hard, floor)
        return np.asarray(1.0 - keep, dtype=np.float64)

    def beta_parameters(self, ids: Sequence[PromptId]) -> tuple[FloatP, FloatP]:
        """Return the Beta(a, b) per prompt of the counts beside the streaks."""
        return self._counts.beta_parameters(ids)

    def _learn(self, names: list[PromptId], s: IntP, n: IntP) -> None:
        self._counts.update(names, s, n)
        rows = self._table.add(names)
        first = self._table.column("trials")[rows] == 0
        # A streak fades between visits; further portions of the same visit must not fade it again.
        idle = self._clock - self._table.column("seen")[rows]
        for name in ("easy", "hard"):
            column = self._table.column(name)
            column[rows] = np.where(first, column[rows] * self._config["fade"] ** idle, column[rows])
        self._table.add_visit(rows, s, n, kept=1, clock=self._clock)

    def _age(self, count: int) -> None:
        """Lengthen or end the streaks of visited prompts, and adapt the two probabilities."""
        self._counts.advance(count)
        visited = np.flatnonzero(self._table.column("trials") > 0)
        if not len(visited):
            return
        easy, hard = self._visits(visited)
        # Steps with first visits alone cannot show the effect of skipping, so the probabilities wait for revisits.
        if self._table.column("visited")[visited].any():
            self._adapt(float(easy.mean()), float(hard.mean()))
        for name, column in zip(("easy", "hard"), self._with_visits(), strict=True):
            self._table.column(name)[:] = column
        for name in ("successes", "trials"):
            self._table.column(name)[:] = 0
        self._table.column("visited")[visited] = 1

    def _adapt(self, easy: float, hard: float) -> None:
        rate, target = self._config["rate"], self._config["target"]
        for name, share, aim in (
            ("_keep_easy", easy, target / 3.0),
            ("_keep_hard", hard, target * 2.0 / 3.0),
        ):
            moved = getattr(self, name) + (-rate if share >= aim else rate)
            setattr(self, name, min(_HIGH, max(_LOW, moved)))

    def _visits(self, rows: IntP) -> tuple[IntP, IntP]:
        """Return which of this step's visits were all right, and which all wrong, as 1 or 0."""
        rate = self._table.column("successes")[rows] / self._table.column("trials")[rows]
        easy, hard = rate >= self._config["easy"], rate <= self._config["hard"]
        return easy.astype(np.int64), hard.astype(np.int64)

    def _with_visits(self) -> tuple[FloatP, FloatP]:
        """Return the streaks of all rows, this step's visits included."""
        visited = np.flatnonzero(self._table.column("trials") > 0)
        columns = [self._table.column(name).copy() for name in ("easy", "hard")]
        for column, is_so in zip(columns, self._visits(visited), strict=True):
            column[visited] = (column[visited] + 1.0) * is_so  # any other visit ends the run
        return columns[0], columns[1]

    def _parts(self) -> dict[str, Any]:
        return {
            **self._table.state(),
            "keep_easy": self._keep_easy,
            "keep_hard": self._keep_hard,
            "counts": self._counts.state_dict(),
        }

    def _read(self, state: Mapping[str, Any], clock: int) -> Any:
        keeps = [check_number(name, state[name], low=_LOW, high=_HIGH) for name in ("keep_easy", "keep_hard")]
        table = PromptTable(_COLUMNS)
        table.load(state)
        table.check_visits(self.KIND, clock)
        counts = Counts(discount=self._config["discount"], fade=0.999)
        counts.load_state_dict(state["counts"])
        return table, counts, keeps

    def _adopt(self, parts: Any) -> None:
        self._table, self._counts, (self._keep_easy, self._keep_hard) = parts
