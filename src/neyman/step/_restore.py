"""A controller's state beside its belief: what is saved, and how it becomes a step again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neyman._checks import integer
from neyman.randomness import PromptId
from neyman.step._engine import Engine
from neyman.step._pool import Pool
from neyman.step._soundness import check_reread, check_sound, readable


def state_of(engine: Engine, late: Mapping[int, PromptId], *, is_open: bool) -> dict[str, Any]:
    """Return the state, JSON-safe.

    Args:
        engine: the step.
        late: rollouts of closed steps that are still out, with their prompts.
        is_open: whether the step is open.
    """
    return {
        "seed": engine.seed,
        "fingerprint": None if engine.pool is None else engine.pool.fingerprint,
        "pool": None if engine.pool is None else engine.pool.state_dict(),
        "late": [[rollout_id, prompt_id] for rollout_id, prompt_id in late.items()],
        "open": engine.open_state() if is_open else None,
        **engine.state_dict(),
    }


def restored(old: Engine, state: Mapping[str, Any]) -> tuple[Engine, dict[int, PromptId]]:
    """Return the step and the late rollouts that a state holds, for the strategy and the limits of ``old``.

    Args:
        old: a step of the same controller, which is left alone.
        state: what `state_of` returned, of the same prompt set.

    Raises:
        StateError: a part that cannot be read, does not read back as it was saved, or does not fit the others.
    """
    with readable("the controller state"):
        seed = integer("seed", state["seed"])
        pool = None if old.pool is None else Pool(old.pool.ids, seed=seed)
        if pool is not None:
            pool.load_state_dict(state["pool"])
        engine = Engine(
            old.strategy,
            old.budget,
            train_rows=old.train_rows,
            pool=pool,
            seed=seed,
            retries=old.retry_share,
        )
        engine.load_state_dict(state)
        is_open = state["open"] is not None
        if is_open:
            engine.load_open(state["open"])
        late: dict[int, PromptId] = dict(state["late"])
        check_sound(engine, late, is_open=is_open)
        check_reread(state, state_of(engine, late, is_open=is_open))
    return engine, late
