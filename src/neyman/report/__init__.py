"""Reports of trainings, comparisons and replays, each a self-contained page and a JSON file of its figures."""

from neyman.report._comparison_page import comparison_summary as comparison_summary
from neyman.report._comparison_page import write_comparison as write_comparison
from neyman.report._replay import replay_summary as replay_summary
from neyman.report._replay import write_replay as write_replay
from neyman.report._runs import Groups as Groups
from neyman.report._runs import Run as Run
from neyman.report._runs import load_run as load_run
from neyman.report._runs import load_runs as load_runs
from neyman.report._training_page import render as render
from neyman.report._training_page import summary as summary
from neyman.report._training_page import write_report as write_report

__all__ = [
    "Groups",
    "Run",
    "comparison_summary",
    "load_run",
    "load_runs",
    "render",
    "replay_summary",
    "summary",
    "write_comparison",
    "write_replay",
    "write_report",
]
