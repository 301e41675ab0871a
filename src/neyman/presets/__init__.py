"""Published methods by name, one file each: every one is one choice of a strategy's parts.

A new preset is a file here that ends in a ``PRESET``, and a page in docs/methods.
"""

from __future__ import annotations

from neyman.presets._by_name import known_strategy as known_strategy
from neyman.presets._by_name import strategy_by_name as strategy_by_name
from neyman.presets._named import imported as imported
from neyman.presets._options import parse_options as parse_options
from neyman.presets._preset import Preset as Preset
from neyman.presets._registry import PRESETS as PRESETS
from neyman.presets._registry import preset as preset
from neyman.presets._registry import unknown_name as unknown_name
