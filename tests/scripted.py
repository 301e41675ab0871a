"""A host that answers by a script: the outcomes of each prompt, in the order of its rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neyman import Batch, Controller, Outcome
from neyman.randomness import PromptId


class Script:
    """Plays ``outcomes[prompt]`` rollout by rollout over all steps; an exhausted prompt fails from then on.

    Args:
        outcomes: successes (1 or 0) in order; None is a missing result.
        rewards: (failure, success), told beside the success.
    """

    def __init__(
        self,
        outcomes: Mapping[PromptId, Sequence[int | None]],
        rewards: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self._left = {prompt: list(sequence) for prompt, sequence in outcomes.items()}
        self._rewards = rewards
        self.asked: dict[PromptId, int] = {}
        self.calls: list[dict[PromptId, int]] = []

    def step(self, controller: Controller, candidates: Sequence[PromptId]) -> Batch:
        """Run one step; ``asked`` has its rollouts by prompt, ``calls`` those of each round."""
        self.asked, self.calls = {}, []
        controller.begin(candidates)
        while not controller.is_done:
            told, round_ = [], {}
            for request in controller.ask():
                prompt = request.prompt_id
                round_[prompt] = round_.get(prompt, 0) + len(request.rollout_ids)
                for rollout_id in request.rollout_ids:
                    result = self._left[prompt].pop(0) if self._left.get(prompt) else 0
                    told.append(
                        Outcome(
                            rollout_id=rollout_id,
                            prompt_id=prompt,
                            reward=None if result is None else self._rewards[result],
                            success=None if result is None else bool(result),
                            n_tokens=1,
                        )
                    )
            self.calls.append(round_)
            for prompt, n in round_.items():
                self.asked[prompt] = self.asked.get(prompt, 0) + n
            controller.tell(told)
        return controller.finish()
