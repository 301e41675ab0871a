"""The contract of a `neyman.Strategy` under the controller."""

from __future__ import annotations

from neyman.testing._strategy_ends import StrategyEnds
from neyman.testing._strategy_repeat import StrategyRepeat
from neyman.testing._strategy_spend import StrategySpend


class StrategySuite(StrategySpend, StrategyRepeat, StrategyEnds):
    """Everything that a host relies on in a strategy. Subclass it, define ``make``, run pytest.

    The parts of a strategy have suites of their own, which are closer to a fault in one of them.

    Hooks:
        make: returns a fresh `neyman.Strategy`, with the same settings at each call. Required.

    Attributes:
        budget: rollouts per step, a multiple of ``divisor``, default 64; one and a half and two times as much
            are tried too.
        prompts: prompts that the host brings per step, default 8.
        pool_size: prompts in all, 0 to ``pool_size - 1``, default 40.
        divisor: of the rows, default 8.
        worlds: sets of success rates tried per check, default 2.
        bounds: (fewest, most) rollouts of a prompt that is opened in a step; None as most is the budget.
        retest_within: steps within which a prompt that looked settled gets rollouts again, default 64.
        settled_trials: rollouts, all solved or all failed, that make it look settled, default 32.
        absorbing: why such a prompt may be left for longer; None demands that it is not.
        by_name: why the names of prompts matter, e.g. draws keyed by prompt; None demands that they do not.
        seed: see `Suite`.

    Guarantee: passing means the checks hold in the worlds tried, which are the same at each run.

    Cost: about 90 steps of the controller.
    """

    __test__ = False
