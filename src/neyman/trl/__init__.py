"""neyman inside TRL: `adaptive(GRPOTrainer)` is a trainer whose rollouts a strategy allocates."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

from neyman.errors import ArgumentError, missing_extra

if find_spec("trl") is None:
    raise missing_extra("trl", "train", "neyman.trl")

from neyman.trl._checkpoint import last_checkpoint as last_checkpoint
from neyman.trl._mixin import AdaptiveMixin as AdaptiveMixin

Trainer = TypeVar("Trainer")
_OVERRIDDEN = (
    "_generate_and_score_completions",
    "_generate_single_turn",
    "_calculate_rewards",
    "_compute_loss",
)


def adaptive(trainer_class: type[Trainer]) -> type[Trainer]:
    """Return a subclass of a TRL trainer whose rollouts a strategy allocates.

    ``num_generations`` becomes the *average* group size: strategies with fixed spend generate and train exactly
    TRL's generation batch, those with fixed train generate up to ``max_rollouts`` and train as many rows.

    The subclass takes, beside the trainer's own arguments:
        strategy: a `neyman.Strategy`, e.g. ``neyman.preset("vip", lower=4, upper=32)``.
        success: the verified outcome where rewards are shaped or several: ``(reward function's name, threshold)``,
            or a callable like a reward function that returns one bool (or None) per completion.
        max_rollouts: the most rollouts per generation batch with fixed train (default 4 x the batch).
        retries: re-draws of rollouts that no reward function could score, as a share of the budget in [0, 1]
            (default .1).
        id_column: a dataset column with an id per prompt (default: the row number).
        features: for beliefs that use them: an array [prompts, dimensions], a callable on texts, or the name of a
            sentence-transformers model.
        modulation: `neyman.modulation.Modulation` for DynaMO's token factor; default the strategy's own.
        reward_timeout: seconds that one call of a reward function may take; a completion that it does not score in
            time counts as a timeout, never as wrong (default: no limit).
        accept_strategy_change: resume a checkpoint of another strategy; a belief of the same kind and settings goes on,
            another starts anew (default: such a checkpoint is refused).

    Args:
        trainer_class: ``GRPOTrainer``, ``RLOOTrainer`` or a subclass of one (Unsloth's, your own).

    Raises:
        ArgumentError: a class that is no such trainer, or something that is no class.

    Guarantee: with ``neyman.preset("uniform")`` and every completion scorable, losses, gradients and sampled
    rows equal the stock trainer's.
    """
    if not isinstance(trainer_class, type):
        raise ArgumentError(
            f"trainer_class must be a class, got {type(trainer_class).__name__} made already ({trainer_class!r:.80}): "
            f"adapt the class and give it the trainer's arguments, adaptive(GRPOTrainer)(model=..., reward_funcs=..., "
            "args=..., train_dataset=..., strategy=neyman.preset('vip'))"
        )
    key: Any = trainer_class  # a class can be a key, which the type checker does not see
    adapted: type[Trainer] = _adapted(key)
    return adapted


@cache
def _adapted(trainer_class: Any) -> Any:
    missing = [name for name in _OVERRIDDEN if not hasattr(trainer_class, name)]
    if missing:
        raise ArgumentError(
            f"trainer_class must be TRL's GRPOTrainer, its RLOOTrainer or a subclass of one (trl >= 1.0), got "
            f"{trainer_class!r}, which lacks {', '.join(missing)}"
        )
    name = f"Adaptive{trainer_class.__name__}"
    namespace: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": f"{trainer_class.__name__} under a neyman strategy.",
    }
    return type(name, (AdaptiveMixin, trainer_class), namespace)
