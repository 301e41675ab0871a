"""One step of rollout generation behind `neyman.Controller`.

The public modules hold the messages that pass between a host and the controller (`messages`, `batch`, `missing`), the
account of every rollout (`ledger`) and the reading of binary rewards (`outcome`). The private ones hold the step
itself: `_engine` drives a `_state` by one of two planners, `_once` (counts for all prompts at once) or `_waves`
(verdicts on groups while they are drawn); `_close` ends it.
"""
