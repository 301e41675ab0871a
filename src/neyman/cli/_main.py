"""The entry of the command: which command, its status, and errors in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from rich.console import Console

from neyman import __version__
from neyman.cli._compare import compare_command
from neyman.cli._plan import plan_command
from neyman.cli._replay import replay_command
from neyman.cli._train import demo_command, report_command, train_command
from neyman.errors import ArgumentError, NeymanError

USAGE = """\
usage: neyman COMMAND ...

  neyman train [CONFIG.toml] [--section.field VALUE ...] --out DIR [--resume]
      train strategies side by side at one budget, and report the yield of every rollout
  neyman report DIR
      write report.html and summary.json again from the runs in DIR
  neyman demo --out DIR
      the embedded default, minutes on two cores; goes on where it was when DIR exists
  neyman compare --out DIR [--resume]
      strategies x seeds x learning rates with a tiny policy, each at its best, minutes on two cores
  neyman replay FILE... --out DIR
      the rollouts that each strategy would have saved on a finished run, from its logs
  neyman plan [FILE...] [--beta A B] --group-size K ...
      the share of dead groups, and the saving of each way to spend a budget

neyman COMMAND --help lists a command's settings; --debug shows tracebacks; --version.
"""
_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train_command,
    "report": report_command,
    "demo": demo_command,
    "compare": compare_command,
    "replay": replay_command,
    "plan": plan_command,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its status: 0 well, 1 a run failed, 2 a user's error, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not words or words[0] in {"-h", "--help"}:
        sys.stdout.write(USAGE)
        sys.exit(0 if words else 2)
    if words[0] == "--version":
        sys.stdout.write(f"neyman {__version__}\n")
        sys.exit(0)
    try:
        if words[0] not in _COMMANDS:
            raise ArgumentError(f"the command must be one of {', '.join(_COMMANDS)}, got {words[0]!r}")
        status = _COMMANDS[words[0]](words[1:])
    except NeymanError as error:
        if debug:
            raise
        console.print(f"neyman: {error}", markup=False)
        status = 2
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)
