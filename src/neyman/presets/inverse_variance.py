"""VIP's heuristic: rollouts in proportion to 1 / (p (1-p) + epsilon), so that settled prompts get most.

Source: baseline "inverse variance" of VIP, arXiv 2602.01601.
"""

from __future__ import annotations

from functools import partial

from neyman.presets._inverse import inverse
from neyman.presets._preset import Preset

PRESET = Preset(
    "inverse-variance",
    partial(inverse, "variance"),
    "in order | default | 1 / (p(1-p) + e) | none | baseline there",
    place=150,
)
