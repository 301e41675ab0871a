"""``neyman replay``: the rollouts that each strategy would have saved on a finished run, from its logs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neyman._jobs import cores, interruptible
from neyman.cli._terminal import Bar, check_jobs, check_out, new_console, picked, split_names, table_console
from neyman.errors import ArgumentError
from neyman.presets import PRESETS, known_strategy


@dataclass(frozen=True)
class ReplayCommand:
    """Replay strategies against the rollouts that a run recorded.

    Reads TRL's log_completions, verl's rollout dumps, counts per prompt, and rollouts one a row, as parquet,
    JSON lines or CSV.
    """

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Logs of one run, or folders of them."""
    out: Path
    """Directory of summary.json and report.html."""
    strategies: str = ""
    """Names, separated by commas [all]; options stand behind colons, as in sara:variant=published:threshold=0.3."""
    group_size: int = 8
    """Rollouts of a full group."""
    seeds: int = 5
    """How many: 0, 1, 2, ..."""
    prompts_per_step: int | None = None
    """Prompts that a step brings [128, or all]."""
    passes: float | None = None
    """End of the replay, in passes over the prompts [the record's span]."""
    width: int | None = None
    """Rollouts that the engine runs at once [all requested ones]."""
    beyond: Literal["neighbours", "refuse"] = "neighbours"
    """Rollouts beyond a visit's record: drawn from the neighbouring visits, or refused."""
    columns: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ROLE=COLUMN ...")] = ()
    """Columns of unusual names, as in prompt=problem reward=accuracy."""
    success_threshold: float | None = None
    """Rewards from here on are successes, where they are not binary."""
    features: Literal["none", "embed"] = "none"
    """Prompt features for the beliefs that use them."""
    jobs: int | None = None
    """Processes at once [one per core]."""


def replay_command(words: list[str]) -> int:
    """Run the command and return its status."""
    command = tyro.cli(ReplayCommand, args=words, prog="neyman replay")
    console = new_console()
    names = _names(command.strategies)
    if command.seeds < 1:
        raise ArgumentError(f"--seeds must be >= 1, got {command.seeds}")
    check_jobs(command.jobs)
    check_out(command.out)
    from neyman.replay import BEYOND_WORDS, plan_of, read_logs, replay_all, settings_for  # noqa: PLC0415 - after --help
    from neyman.report import replay_summary, write_replay  # noqa: PLC0415

    trace, found, texts = read_logs(
        command.files,
        columns=command.columns,
        success_threshold=command.success_threshold,
        keep_texts=command.features == "embed",
    )
    for line in found.sentences():
        console.print(line, markup=False)
    settings = settings_for(
        trace, **picked(command, "group_size", "prompts_per_step", "passes", "width", "beyond")
    )
    features = None if texts is None else _embed(texts, console)
    command.out.mkdir(parents=True, exist_ok=True)
    try:
        with interruptible(), Bar(console) as bar:
            runs = replay_all(
                trace,
                names,
                settings,
                seeds=range(command.seeds),
                features=features,
                out=command.out / "runs",
                jobs=command.jobs or cores(),
                watch=_watch(bar),
            )
    except KeyboardInterrupt:
        console.print("\nInterrupted; finished runs are kept. The same command goes on.", markup=False)
        raise
    summary = replay_summary(
        [(run.strategy, run.seed, run.figures) for run in runs],
        found=found.as_dict(),
        found_sentences=found.sentences(),
        difficulty=plan_of(trace, settings.group_size),
        options={
            **settings.as_dict(),
            "strategies": names,
            **picked(command, "seeds", "features", "success_threshold"),
            "columns": list(command.columns),
            "command": shlex.join(["neyman", "replay", *words]),
        },
        beyond=BEYOND_WORDS["static" if trace.is_static else command.beyond],
    )
    _show(summary, write_replay(command.out, summary), console)
    return 0


def _show(summary: dict[str, Any], path: Path, console: Console) -> None:
    table_console(console).print(_table(summary))
    if any(one["waste_factor_counts"] == "any" for one in summary["strategies"].values()):
        console.print("* trains groups of other sizes: mixed groups of any size count", markup=False)
    console.print(
        f"\n{summary['advice']}\n\n{summary['cannot_know']}\n\nreport: {path.absolute()}", markup=False
    )


def _names(listed: str) -> list[str]:
    names = split_names(listed) or list(PRESETS)
    return [known_strategy(name, field="--strategies", functions=False, words=True) for name in names]


def _embed(texts: list[str], console: Console) -> Any:
    if not all(texts):
        raise ArgumentError(
            "--features embed needs the prompts' texts, and the logs hold ids alone; use none"
        )
    from neyman.beliefs.embeddings import prompt_features  # noqa: PLC0415 - an extra

    console.print(f"embedding {len(texts):,} prompts, once", markup=False)
    return prompt_features(texts)


def _watch(bar: Bar) -> Callable[[Sequence[tuple[str, int, float]]], None]:
    """Return the function that shows the shares of all runs in one bar."""

    def update(runs: Sequence[tuple[str, int, float]]) -> None:
        shares = [share for _, _, share in runs]
        running = sum(0.0 < share < 1.0 for share in shares)
        done = sum(share >= 1.0 for share in shares)
        bar.update(done, len(shares), f"replayed, {running} going", share=sum(shares) / len(shares))

    return update


_COLUMNS = (
    ("effective_ratio", "effective", 3),
    ("effective_groups_per_1000_rollouts", "per 1,000", 1),
    ("waste_factor", "waste", 3),
    ("signal_kept", "signal", 3),
    ("coverage", "coverage", 3),
    ("max_revisit_gap", "max gap", 2),
    ("rounds_per_step", "rounds", 1),
    ("log_loss", "log-loss", 3),
)


def _table(summary: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("strategy")
    for _, heading, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    for name, figures in summary["strategies"].items():
        cells = [_cell(figures[key], digits) for key, _, digits in _COLUMNS]
        if figures["waste_factor_counts"] == "any":
            cells[2] += "*"
        table.add_row(Text(name), *cells)
    return table


def _cell(interval: dict[str, float | None], digits: int) -> str:
    mean, low, high = interval["mean"], interval["low"], interval["high"]
    if mean is None:
        return "-"
    half = "" if low is None or high is None else f" ±{(high - low) / 2:.{digits}f}"
    return f"{mean:.{digits}f}{half}"
