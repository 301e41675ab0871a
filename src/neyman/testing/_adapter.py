"""The contract of an adapter: that a trainer trains the controller's decisions, and nothing else."""

from __future__ import annotations

from neyman.testing._adapter_rows import HostRows
from neyman.testing._adapter_runs import HostRuns


class HostSuite(HostRows, HostRuns):
    """Everything that a user relies on in an adapter. Subclass it, define ``make``, run pytest.

    The driver that ``make`` returns runs trainings of a tiny policy through the real adapter, and reports what was
    trained. Every check is one or a few trainings of two to four steps.

    Hooks:
        make: returns a `HostDriver`. Required.

    Attributes:
        group_setting: the trainer's name for the average group size, which refusals must mention.
        eps: added to the standard deviation by the trainer's GRPO, default 1e-4.
        fills_batch: whether missing rows are filled with rows that train nothing, default True; otherwise a step
            may train fewer.
        keeps_no_rollouts: why rollouts cannot be kept for a later step; None demands that they can.
        seed, examples: see `Suite`; not used.

    Guarantee: passing means the checks hold for the trainings tried, which are the same at each run.

    Cost: about 20 trainings.
    """

    __test__ = False
