"""The contract as tests: subclass a suite, define how to make your object, and run pytest.

Needs the extra ``testing``. Usage, and the demand of each check: docs/testing.md.
"""

from __future__ import annotations

from neyman.errors import missing_extra as _missing_extra

try:
    import hypothesis  # noqa: F401 (the suites search with it)
    import pytest  # noqa: F401 (it runs them)
except ImportError as _error:
    raise _missing_extra(_error.name or "pytest", "testing", "neyman.testing") from _error

from neyman.testing._adapter import HostSuite as HostSuite
from neyman.testing._adapter_case import HostCase as HostCase
from neyman.testing._adapter_case import HostDriver as HostDriver
from neyman.testing._adapter_case import HostRecord as HostRecord
from neyman.testing._adapter_case import HostStep as HostStep
from neyman.testing._allocate import AllocateSuite as AllocateSuite
from neyman.testing._belief import BeliefSuite as BeliefSuite
from neyman.testing._contract import BrokenContract as BrokenContract
from neyman.testing._host import Host as Host
from neyman.testing._host import run_step as run_step
from neyman.testing._select import SelectSuite as SelectSuite
from neyman.testing._strategy import StrategySuite as StrategySuite
from neyman.testing._verdict import VerdictSuite as VerdictSuite

__all__ = [
    "AllocateSuite",
    "BeliefSuite",
    "BrokenContract",
    "Host",
    "HostCase",
    "HostDriver",
    "HostRecord",
    "HostStep",
    "HostSuite",
    "SelectSuite",
    "StrategySuite",
    "VerdictSuite",
    "run_step",
]
