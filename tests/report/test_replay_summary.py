"""Figures of a replay, over seeds."""

from neyman.report._replay_summary import FIGURES, summarise_strategy


def test_waste_counts_full_groups_only_where_all_seeds_train_them():
    def figures(*, full, **others):
        empty = dict.fromkeys(FIGURES)
        return {
            **empty, "fates": {"trained": 3, "uniform": 1}, "rollouts": 4.0, "trains_full_groups": full,
            "stop_reasons": {"complete": 1}, "group_sizes": {"8": 1}, **others,
        }  # fmt: skip

    values = {"waste_factor_full": 2.0, "waste_factor_any": 1.5}
    fixed = summarise_strategy([figures(full=True, **values)] * 2)
    assert (fixed["waste_factor"]["mean"], fixed["waste_factor_counts"]) == (2.0, "full")
    mixed = summarise_strategy([figures(full=True, **values), figures(full=False, **values)])
    assert (mixed["waste_factor"]["mean"], mixed["waste_factor_counts"]) == (1.5, "any")
    assert mixed["fates"]["trained"]["mean"] == 0.75
    assert mixed["coverage"] == {"mean": None, "low": None, "high": None}
