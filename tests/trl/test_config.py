"""neyman's settings through TRL's own parser."""

from __future__ import annotations

import pytest
from trl import TrlParser

from neyman.errors import ArgumentError
from neyman.trl.config import AdaptiveGRPOConfig, AdaptiveRLOOConfig

HOST = ["--output_dir", "out", "--bf16", "False", "--use_cpu", "True"]


@pytest.mark.parametrize("config", [AdaptiveGRPOConfig, AdaptiveRLOOConfig])
def test_the_command_line_sets_strategy_and_success(config):
    flags = ["--strategy", "sara", "--strategy_options", '{"threshold": 0.3}', "--success_reward", "exact"]
    (args,) = TrlParser((config,)).parse_args_and_config([*HOST, *flags, "--max_rollouts", "128"])
    arguments = args.trainer_arguments()
    assert arguments["strategy"].name == "sara"
    assert arguments["strategy"].verdict.threshold == 0.3
    assert arguments["success"] == ("exact", 0.5)
    assert arguments["max_rollouts"] == 128


def test_the_default_is_the_stock_behaviour():
    (args,) = TrlParser((AdaptiveGRPOConfig,)).parse_args_and_config(HOST)
    assert args.trainer_arguments()["strategy"].name == "uniform"
    assert args.num_generations == 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{lower: 4}", "must be JSON"),
        ("[4]", "JSON object"),
        ('{"lower": 4, "lower": 8}', "'lower' stands twice"),
    ],
)
def test_options_that_are_no_json_object_are_refused(options, said):
    config = AdaptiveGRPOConfig(output_dir="out", bf16=False, use_cpu=True, strategy_options=options)
    with pytest.raises(ArgumentError, match=said):
        config.build_strategy()
