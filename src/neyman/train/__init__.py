"""Training runs under TRL: one in a process of its own, several side by side, each resumable after any kill.

A run's directory holds ``run.json``, ``metrics.jsonl``, ``checkpoint-N``, ``log.txt`` and, when it is complete,
``done.json``. Importing this package loads no training library; the processes that train do.
"""

from neyman.train._all import Outcome as Outcome
from neyman.train._all import train_all as train_all
from neyman.train._console import finish as finish
from neyman.train._console import train_here as train_here
from neyman.train._folder import RunFolder as RunFolder

__all__ = ["Outcome", "RunFolder", "finish", "train_all", "train_here"]
