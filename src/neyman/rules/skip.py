"""GRESO's selection: prompts in order, where runs of zero-variance groups are skipped at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from neyman._checks import FloatP
from neyman.beliefs import Streaks
from neyman.randomness import PromptId, keyed_hash
from neyman.rules._contracts import StepView

_ROUNDS = 12  # doublings of the part of the pool that is offered


@final
@dataclass(frozen=True, slots=True)
class SkipUniform:
    """The prompts of the host's batch in order and then the pool's, each skipped with a chance from the belief.

    With `neyman.beliefs.Streaks` the chance is GRESO's, with any other belief that of a zero-variance group. Prompts
    of the pool are drawn evenly, so that each is offered about once per pass, as by a data loader.

    Guarantee: a prompt is skipped or taken once per step, in any wave, because the draw is keyed by (seed, step,
    prompt). If too few remain, the least likely to have zero variance are taken all the same, so that a step never
    lacks prompts.
    Source: GRESO, arXiv 2506.02177.
    """

    def pick(self, view: StepView, count: int) -> list[PromptId]:
        """Return up to ``count`` prompts that were not skipped, in their order."""
        if count <= 0:
            return []
        offered, wanted = list(view.candidates), count
        for _ in range(_ROUNDS):
            skip = self._chances(view, offered)
            draws = self._draws(view, offered)
            taken = [prompt for prompt, u, chance in zip(offered, draws, skip, strict=True) if u >= chance]
            if len(taken) >= count:
                return taken[:count]
            wanted = 2 * wanted  # few are kept where most prompts are settled, so ever more are offered
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
