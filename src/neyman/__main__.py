"""The entry of the `neyman` command: where it cannot be loaded, one line names the extra to install."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from neyman.errors import MissingExtraError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its status."""
    try:
        from neyman.cli import main as command  # noqa: PLC0415 - needs an extra
    except MissingExtraError as error:
        sys.stderr.write(f"neyman: {error}\n")
        sys.exit(2)
    command(arguments)


if __name__ == "__main__":
    main()
