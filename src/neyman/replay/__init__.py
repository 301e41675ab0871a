"""Replay of a recorded run: the rollouts that each strategy would have spent on it, and their yield."""

from neyman.replay._columns import ROLES as ROLES
from neyman.replay._difficulty import BetaDifficulty as BetaDifficulty
from neyman.replay._difficulty import CountDifficulty as CountDifficulty
from neyman.replay._difficulty import Difficulty as Difficulty
from neyman.replay._draws import BEYOND_WORDS as BEYOND_WORDS
from neyman.replay._found import FileFound as FileFound
from neyman.replay._found import Found as Found
from neyman.replay._host import replay_strategy as replay_strategy
from neyman.replay._host import strategy_for as strategy_for
from neyman.replay._plan import SizePlan as SizePlan
from neyman.replay._plan import plan as plan
from neyman.replay._plan import plan_of as plan_of
from neyman.replay._read import read_logs as read_logs
from neyman.replay._runs import Replayed as Replayed
from neyman.replay._runs import replay_all as replay_all
from neyman.replay._settings import Settings as Settings
from neyman.replay._settings import settings_for as settings_for
from neyman.replay._trace import Trace as Trace

__all__ = [
    "BEYOND_WORDS",
    "ROLES",
    "BetaDifficulty",
    "CountDifficulty",
    "Difficulty",
    "FileFound",
    "Found",
    "Replayed",
    "Settings",
    "SizePlan",
    "Trace",
    "plan",
    "plan_of",
    "read_logs",
    "replay_all",
    "replay_strategy",
    "settings_for",
    "strategy_for",
]
