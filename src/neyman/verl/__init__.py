"""neyman inside verl: ``trainer.v1.trainer_mode=neyman_sync`` is verl's synchronous trainer under a strategy.

verl finds this module by itself, through the entry point ``verl.plugins``, in every process of the cluster. The
strategy is named in verl's own configuration:

    python -m verl.trainer.main_ppo ... trainer.v1.trainer_mode=neyman_sync +neyman.strategy=sara

All keys below ``neyman`` are those of `Settings`. Everything else stays verl's: engines, workers, reward functions,
losses, and the advantage estimator, with or without a critic.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec

from neyman.errors import missing_extra

if find_spec("verl") is None:
    raise missing_extra("verl", "verl", "neyman.verl")

try:
    from neyman.verl._settings import Settings as Settings
    from neyman.verl._trainer import NeymanTrainerSync as NeymanTrainerSync
except ImportError as error:
    # verl drops what a plugin raises unless it logs at DEBUG.
    logging.getLogger("neyman").warning(
        "neyman is not available in verl: %s (pip install 'neyman[verl]')", error
    )
    raise
