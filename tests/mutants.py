"""Objects broken on purpose, and which checks of a suite say so."""

from __future__ import annotations

import re
from pathlib import Path

from neyman.testing._contract import PAGE, Suite

_POINTER = re.compile(rf"see {re.escape(PAGE)}, section '([^']+)'")


def complaints(suite: Suite) -> dict[str, str]:
    """Run every check of a suite and return what the failing ones say, by the check's name."""
    said = {}
    for name in sorted(name for name in dir(suite) if name.startswith("test_")):
        try:
            getattr(suite, name)()
        except Exception as error:  # noqa: BLE001 (whatever a broken object raises is what is looked at)
            said[name.removeprefix("test_")] = "\n".join([str(error), *getattr(error, "__notes__", ())])
    return said


def assert_caught(suite: Suite, *checks: str) -> None:
    """Exactly these checks fail, and each names a section of the page that explains it."""
    said = complaints(suite)
    assert set(said) == set(checks), f"expected {sorted(checks)} to fail, these did:\n" + "\n".join(
        f"{name}: {message}" for name, message in said.items()
    )
    headings = set(re.findall(r"^#+ (.+)$", (Path(__file__).parent.parent / PAGE).read_text(), re.MULTILINE))
    for message in said.values():
        sections = _POINTER.findall(message)
        assert sections, message
        assert set(sections) <= headings, message
