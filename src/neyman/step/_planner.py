"""The part of a step that decides: which groups are opened, how far each is planned, and when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from neyman.step._group import Group


class Planner(Protocol):
    """Decisions on one `StepState`, in the order in which `Engine` calls for them.

    There are two: `neyman.step._once.AtOnce` for strategies without a verdict, `neyman.step._waves.Waves` for those
    with one.
    """

    @property
    def target(self) -> int | None:
        """Groups that the step is to train; None where the budget decides."""

    @property
    def is_pending(self) -> bool:
        """Whether a part of the budget waits for results before it is planned."""

    @property
    def sees_whole_groups(self) -> bool:
        """Whether no verdict ends a group early, so that the share of zero-variance groups is that of whole groups."""

    def begin(self) -> None:
        """Open the first groups of a step."""

    def judge(self, index: int) -> None:
        """Take the verdicts on an open group that its results allow by now."""

    def retire(self, index: int) -> None:
        """Take a group out of play."""

    def advance(self) -> None:
        """Plan whatever the results so far allow."""

    def stop(self) -> None:
        """Plan nothing more in this step."""

    def is_wanted(self, group: Group) -> bool:
        """Whether a group that this step does not need may train in a later one."""

    def audit(self, *, is_final: bool) -> dict[str, float]:
        """Return metrics of the verdicts of a step; at its end, also learn from them."""

    def state_dict(self) -> dict[str, Any]:
        """Return the planner's part of an open step, JSON-safe, under the keys of `PLANNED`."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up an open step whose groups are restored; a saved value that cannot be here is a `NeymanError`."""


PLANNED = {"price", "recounts_left"}
