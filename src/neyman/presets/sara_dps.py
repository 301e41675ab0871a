"""SARA's verdicts over DPS's order of prompts; the options are those of `sara` but for the order.

Source: SARA, arXiv 2607.26253, which reports its verdicts over this order.
"""

from __future__ import annotations

from functools import partial

from neyman.presets import sara
from neyman.presets._preset import Preset

# DPS breaks ties between equal beliefs by draws that are keyed by prompt.
_BY_KEY = {"by_name": "ties and draws are keyed by prompt"}

PRESET = Preset(
    "sara+dps",
    partial(sara.build, order="dps"),
    "as dps | as dps | full groups | early | arXiv 2607.26253",
    place=190,
    small={"schedule": (2,)},
    exceptions={"fixed_spend": _BY_KEY, "streaming": _BY_KEY},
)
