"""Training runs under TRL: one in a process of its own, several side by side, each resumable after any kill.

A run's directory holds ``run.json``, ``metrics.jsonl``, ``checkpoint-N``, ``log.txt`` and, when it is complete,
``done.json``. Importing this package loads no training library.
"""

from neyman.train._all import Outcome as Outcome
from neyman.train._all import train_all as train_all
from neyman.train._console import finish as finish
from neyman.train._console import train_here as train_here
from neyman.train._folder import RunFolder as RunFolder
from neyman.train._start import check_start as check_start
from neyman.train._start import clear as clear
from neyman.train._start import has_begun as has_begun
from neyman.train._start import only_one as only_one

__all__ = [
    "Outcome",
    "RunFolder",
    "check_start",
    "clear",
    "finish",
    "has_begun",
    "only_one",
    "train_all",
    "train_here",
]
