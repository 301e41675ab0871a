"""GRESO's selection: prompts in order, those with a run of uniform groups passed over by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from neyman._checks import FloatP
from neyman.beliefs import Streaks
from neyman.randomness import PromptId, keyed_hash
from neyman.rules._contracts import StepView

_ROUNDS = 12  # doublings of how much of the pool is offered


@final
@dataclass(frozen=True, slots=True)
class SkipUniform:
    """The host's prompts as they come and then the pool's, each passed over by the chance that its belief gives.

    With `neyman.beliefs.Streaks` the chance is GRESO's; any other belief gives the chance that the group would be
    uniform. Prompts of the pool are drawn evenly, so that each is offered about once per pass, as a loader offers it.

    Guarantee: a prompt is passed over or taken once per step, whatever the wave; the draw is keyed by (seed, step,
    prompt). When all that is offered is passed over, the least likely to be uniform are taken all the same, so a step
    never lacks prompts that exist.

    Source: GRESO, arXiv 2506.02177.
    """

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return up to ``count`` prompts that were not passed over, in their order."""
        if count <= 0:
            return []
        offered, wanted = list(view.candidates), count
        for _ in range(_ROUNDS):
            skip = self._chances(view, offered)
            draws = self._draws(view, offered)
            taken = [prompt for prompt, u, chance in zip(offered, draws, skip, strict=True) if u >= chance]
            if len(taken) >= count:
                return taken[:count]
            wanted = 2 * wanted
            known = set(offered)
            more = [prompt for prompt in view.browse(wanted) if prompt not in known]
            if not more:
                break
            offered += more
        kept = set(taken)
        passed = [(chance, place) for place, chance in enumerate(skip.tolist()) if offered[place] not in kept]
        return (taken + [offered[place] for _, place in sorted(passed)])[:count]

    @staticmethod
    def _chances(view: StepView, ids: list[PromptId]) -> FloatP:
        if isinstance(view.belief, Streaks):
            return view.belief.skip_probability(ids)
        return 1.0 - view.belief.mixed_probability(ids, view.group_size)

    @staticmethod
    def _draws(view: StepView, ids: list[PromptId]) -> list[float]:
        salt = int(view.rng("skip").integers(2**62))
        return [keyed_hash(salt, prompt) / 2.0**64 for prompt in ids]
