"""One right answer per prompt, kept for groups in which none appears."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, final

from neyman.randomness import PromptId
from neyman.step._group import VALID, Group, Slot


@final
class RightAnswers:
    """The latest right answer of each prompt, kept for the ``replay_age`` of the strategy in steps.

    Each is a rollout that already has its fate in the ledger; replayed, it stands in a later batch with its age and
    its policy's version, in the place of one of the wrong answers.
    """

    def __init__(self) -> None:
        self._slots: dict[PromptId, Slot] = {}

    @property
    def rollouts(self) -> list[int]:
        """The rollouts that the host must keep."""
        return [slot.rollout_id for slot in self._slots.values() if slot.rollout_id is not None]

    @property
    def slots(self) -> list[Slot]:
        """The answers, oldest first."""
        return list(self._slots.values())

    def forget(self, step: int, max_age: int) -> None:
        """Drop the answers that are older than ``max_age`` at a step."""
        self._slots = {i: slot for i, slot in self._slots.items() if step - slot.step <= max_age}

    def learn(self, groups: Iterable[Group], step: int) -> None:
        """Take in the first right answer of each group that was drawn in this step."""
        for group in groups:
            right = [
                slot for slot in group.valid() if slot.success and slot.step == step and not slot.replayed
            ]
            if right:
                self._slots.pop(group.prompt_id, None)  # the order is that of age
                self._slots[group.prompt_id] = replace(right[0], spare=False, protected=False)

    def splice(self, group: Group) -> Slot | None:
        """Put the prompt's right answer into a group whose results are all wrong, in the place of the last of them.

        Returns its slot, or None where none is known.
        """
        known = self._slots.get(group.prompt_id)
        if known is None:
            return None
        wrong = [slot for slot in group.slots if slot.state is VALID and not slot.protected]
        if not wrong or any(slot.rollout_id == known.rollout_id for slot in group.slots):
            return None
        wrong[-1].spare = True
        answer = replace(known, replayed=True)
        group.slots.append(answer)
        return answer

    def state_dict(self) -> list[list[Any]]:
        """Return the state, JSON-safe."""
        return [[prompt_id, slot.state_dict()] for prompt_id, slot in self._slots.items()]

    def load_state_dict(self, state: Iterable[tuple[PromptId, Mapping[str, Any]]]) -> None:
        """Restore the state; a slot that this neyman cannot read is a `StateError`."""
        self._slots = {prompt_id: Slot.from_state(raw) for prompt_id, raw in state}
