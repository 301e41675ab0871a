"""The weight of each row in a trainer's loss, by the tokens that the loss counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neyman import formulas
from neyman.controller import Batch
from neyman.strategy import Strategy


def row_weights(
    batch: Batch,
    tokens: NDArray[np.int64],
    strategy: Strategy,
    aggregation: str,
    *,
    places: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return the factors on advantages [rows] under which the loss weighs prompts as the strategy wants.

    The batch's own ``weights`` know of rollouts alone. A mean over tokens also depends on those that the trainer masks
    or adds, which only the trainer knows.

    Args:
        batch: the step's batch.
        tokens: [rows] that the loss counts.
        strategy: decides how prompts weigh.
        aggregation: how the loss averages tokens.
        places: [rows] the place in the batch of each of the trainer's rows; -1 for padding of the trainer's own, which
            trains nothing and stands in the loss's divisor all the same. None where the rows are the batch's.
    """
    # -1 is a legal index too: it reads the last row, which the masks below take out again.
    places = np.arange(len(batch)) if places is None else places
    padding = places < 0
    copies = np.where(padding, 0, batch.copies[places])
    return formulas.prompt_weights(
        np.where(padding, -1, batch.groups[places]),
        tokens,
        prompt_weight=strategy.prompt_weight,
        aggregation=aggregation,
        trained=~padding & (batch.weights[places] > 0.0),
        copies=copies if (copies > 1).any() else None,
    )
