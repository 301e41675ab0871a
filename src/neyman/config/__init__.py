"""Settings of a training, as TOML or flags: frozen models with a description of each field.

Files and flags are checked before anything heavy is imported; ``build_*`` and ``build`` make the objects. Paths are
relative to the working directory and saved absolute.
"""

from neyman.errors import missing_extra

try:
    import pydantic as _pydantic  # noqa: F401
    import tomlkit as _tomlkit  # noqa: F401
    import tyro as _tyro  # noqa: F401
except ImportError as error:
    raise missing_extra(str(error.name), "cli", "neyman.config") from error

from neyman.config._config import Config as Config
from neyman.config._config import from_mapping as from_mapping
from neyman.config._config import to_toml as to_toml
from neyman.config._settings import Options as Options
from neyman.config._settings import Section as Section
from neyman.config._settings import read_toml as read_toml
from neyman.config._strategy import BELIEFS as BELIEFS
from neyman.config._strategy import StrategyConfig as StrategyConfig
from neyman.config._tasks import TASKS as TASKS
from neyman.config._tasks import DataTask as DataTask
from neyman.config._tasks import ReasoningGymTask as ReasoningGymTask
from neyman.config._tasks import RulesTask as RulesTask
from neyman.config._trainer import ModelConfig as ModelConfig
from neyman.config._trainer import TrainerConfig as TrainerConfig

__all__ = [
    "BELIEFS",
    "TASKS",
    "Config",
    "DataTask",
    "ModelConfig",
    "Options",
    "ReasoningGymTask",
    "RulesTask",
    "Section",
    "StrategyConfig",
    "TrainerConfig",
    "from_mapping",
    "read_toml",
    "to_toml",
]
