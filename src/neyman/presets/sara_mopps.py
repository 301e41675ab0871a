"""SARA's verdicts over MoPPS's order of prompts; the options are those of `sara` but for the order.

Source: SARA, arXiv 2607.26253, which reports its verdicts over this order.
"""

from __future__ import annotations

from functools import partial

from neyman.presets import mopps, sara
from neyman.presets._preset import Preset

PRESET = Preset(
    "sara+mopps",
    partial(sara.build, order="mopps"),
    "as mopps | as mopps | full groups | early | arXiv 2607.26253",
    place=200,
    exceptions=mopps.PRESET.exceptions,
)
