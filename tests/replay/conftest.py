"""What the tests of replay share."""

import pytest

from replay.records import build_trace


@pytest.fixture
def make_trace():
    """Return the builder of traces."""
    return build_trace
