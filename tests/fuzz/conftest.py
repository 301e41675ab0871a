"""Says at the end how many inputs were tried."""

import pytest

from fuzz.tally import lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tally."""
    table = lines()
    if table:
        terminalreporter.section("inputs tried")
        for line in table:
            terminalreporter.write_line(line)
