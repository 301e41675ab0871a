"""Our part of a TRL checkpoint: beliefs, ledger, counters, and the generation that is half used.

TRL forgets its step counter and its buffered generation on resume, so that a run saved between two
generations would generate anew and drift. Both are saved here, per process, at any step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from neyman._files import checkpoints
from neyman._files.atomic import write_atomic
from neyman._files.checkpoints import STATE_FILE
from neyman._files.json import loads
from neyman.errors import StateError
from neyman.hosts.identity import differences
from neyman.trl._fit import warn
from neyman.trl._rotation import held_back, rotate
from neyman.trl._store import RolloutStore

if TYPE_CHECKING:
    from neyman.trl._session import Session

# What cuts a generation into steps: a half-used one fits no other cut.
_CUT = ("generation_batch_size", "steps_per_generation", "num_iterations")


def last_checkpoint(output_dir: str | PathLike[str]) -> str | None:
    """Return the newest whole checkpoint of a run, for ``trainer.train(resume_from_checkpoint=...)``.

    A checkpoint that a kill left unfinished is passed over, with a warning that names it. With it a script goes on by
    itself whenever it is started again, and from the start where no checkpoint was finished yet.

    Args:
        output_dir: the trainer's ``output_dir``.

    Returns:
        The checkpoint's path; None where none was ever finished.

    Raises:
        StateError: a newer checkpoint is damaged, of another version of neyman, or was not written by it; the message
            names the file and the ways out.

    Examples:
        >>> last_checkpoint("no/such/run") is None
        True
    """
    found = checkpoints.last_whole(output_dir)
    return None if found is None else str(found)


@final
class Checkpoint:
    """Saves and restores a session beside the trainer's own checkpoint files.

    ``neyman_process{rank}.safetensors`` holds each process's buffered generation and logs;
    ``neyman_state.json`` is written last, after every process is done, and so marks the checkpoint whole.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_finished = True  # the checkpoint that was begun last

    @contextmanager
    def written(self, trial: Any) -> Iterator[None]:
        """Mark the checkpoint as unfinished, let the trainer write its files in the block, and add ours behind.

        Older checkpoints go only then: before, the newest whole one would be lost to a kill.
        """
        trainer = self._session.trainer
        run = trainer._get_output_dir(trial=trial)  # noqa: SLF001 (as TRL's own extra state does)
        folder = Path(run) / f"checkpoint-{trainer.state.global_step}"
        self._is_finished = False

        def begin() -> list[None]:
            if trainer.args.should_save:
                checkpoints.begin(folder)
            return []

        self._session.ranks.exchange(f"writing {folder}", begin)
        with held_back(trainer):
            yield
        self.finish(folder)
        if trainer.args.should_save:
            rotate(trainer, folder)

    def finish(self, folder: Path) -> None:
        """Add our files to those of the trainer, once, and so make the checkpoint whole."""
        if self._is_finished:
            return
        trainer = self._session.trainer

        def write() -> list[None]:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / self._process_file(), self._process_state())
            return []

        self._session.ranks.exchange(f"writing {folder}", write)  # until every process is done
        if trainer.args.should_save:
            state = {
                "processes": int(trainer.accelerator.num_processes),
                "prompts": self._session.prompts_digest,
                "strategy": self._session.identity,
                "controller": self._session.controller.state_dict(),
                "modulation": self._session.modulation_state(),
            }
            checkpoints.seal(folder, state)
        self._is_finished = True

    def to_resume(self, wanted: str | bool | None) -> str | None:
        """Return the checkpoint that ``train`` is to go on from, checked before anything is loaded.

        Args:
            wanted: the trainer's ``resume_from_checkpoint``; True takes the newest whole one.

        Raises:
            StateError: it is not whole, or there is none.
        """
        if not wanted:
            return None
        ranks = self._session.ranks
        return ranks.exchange("finding the checkpoint", lambda: [self._found(wanted)])[ranks.index]

    def _found(self, wanted: str | bool) -> str:
        if isinstance(wanted, bool):
            output = self._session.trainer.args.output_dir
            found = last_checkpoint(output)
            if found is None:
                raise StateError(
                    f"{output} holds no finished checkpoint to resume from: leave resume_from_checkpoint out to begin "
                    "anew, or give neyman.trl.last_checkpoint(output_dir), which is None then"
                )
            return found
        checkpoints.check(Path(wanted))
        return wanted

    def load(self, checkpoint: str) -> None:
        """Restore from a checkpoint folder.

        Raises:
            StateError: no state of ours, a damaged file, another version, dataset, number of processes or strategy,
                or a generation half used that these settings would cut otherwise; the message names the file and the
                way out. What is wrong with one process's file is raised on all.
        """
        self._session.ranks.exchange(f"reading {checkpoint}", lambda: self._load(checkpoint))

    def _load(self, checkpoint: str) -> list[None]:
        folder = Path(checkpoint)
        path = folder / STATE_FILE
        state = checkpoints.check(folder)
        if lacking := sorted({"controller", "modulation"} - set(state)):
            raise checkpoints.refused(folder, f"{path} lacks {' and '.join(lacking)}")
        session, trainer = self._session, self._session.trainer
        processes = int(trainer.accelerator.num_processes)
        for field, here, way_out in (
            ("processes", processes, "resume on as many processes as the run had"),
            ("prompts", session.prompts_digest, "it is of another dataset; resume with that of the run"),
        ):
            if state.get(field) != here:
                raise StateError(
                    f"{path} has {field} {state.get(field)!r}, this run has {here!r}: {way_out}, or start a new run in "
                    "another folder"
                )
        checkpoints.check_content(folder, self._process_file(), state)
        try:
            session.controller.load_state_dict(self._under_this_strategy(path, state))
        except StateError as error:
            raise StateError(f"{path}: {error}") from error
        session.load_modulation_state(state["modulation"])
        self._load_process(folder / self._process_file())
        return []

    def _under_this_strategy(self, path: Path, state: dict[str, Any]) -> dict[str, Any]:
        """Return the controller's state when it is of this run's strategy, or the change of strategy is accepted."""
        session = self._session
        controller: dict[str, Any] = state["controller"]
        saved = state.get("strategy")
        differing = differences(saved, session.identity)
        if not differing:
            return controller
        if not session.accepts_strategy_change:
            raise StateError(
                f"the run was trained under another strategy ({'; '.join(differing)}): resume with that one, or give "
                "the trainer accept_strategy_change=True to go on under yours on purpose"
            )
        if controller["carried"] and not session.controller.strategy.max_age:
            raise StateError(
                f"the run carries {len(controller['carried'])} groups over to its next step, which max_age=0 leaves no "
                "place for: resume under a strategy with max_age=1, or from another checkpoint"
            )
        if not isinstance(saved, dict) or saved.get("belief") != session.identity["belief"]:
            warn(session.trainer, "%s: the strategy has another belief now, which starts anew", path)
            controller = {**controller, "belief": session.controller.strategy.belief.state_dict()}
        return controller

    def _cut(self) -> dict[str, int]:
        args = self._session.trainer.args
        return {name: int(getattr(args, name)) for name in _CUT}

    def _check_cut(self, path: Path, meta: dict[str, Any]) -> bool:
        """Return whether generations are cut otherwise now, which only a whole one allows."""
        saved, here = meta["cut"], self._cut()
        if saved == here:
            return False
        if meta["step"] % (saved["steps_per_generation"] * saved["num_iterations"]):
            differing = [
                f"{name} {saved[name]}, here {here[name]}" for name in _CUT if saved[name] != here[name]
            ]
            raise StateError(
                f"{path} holds a generation that is half used, cut with {'; '.join(differing)}: resume with the "
                "settings that wrote the checkpoint, or from one that lies between two generations"
            )
        return True

    def _process_file(self) -> str:
        return f"neyman_process{self._session.trainer.accelerator.process_index}.safetensors"

    def _process_state(self) -> bytes:
        """Pack this process's buffered batches, step counter and unlogged metrics."""
        trainer = self._session.trainer
        tensors: dict[str, torch.Tensor] = {}
        plain: list[dict[str, Any]] = []
        for place, batch in enumerate(trainer._buffered_inputs or []):  # noqa: SLF001
            rest = {}
            for name, value in batch.items():
                if isinstance(value, torch.Tensor):
                    tensors[f"{place}:{name}"] = value.detach().clone().contiguous().cpu()
                else:
                    rest[name] = value
            plain.append(rest)
        held, rollouts = self._session.generation.store.pack()
        meta = {
            "step": trainer._step,  # noqa: SLF001
            "cut": self._cut(),
            "batches": plain,
            "metrics": {mode: dict(values) for mode, values in trainer._metrics.items()},  # noqa: SLF001
            "rollouts": rollouts,
        }
        packed: bytes = save(
            tensors | held or {"empty": torch.zeros(1)}, metadata={"neyman": json.dumps(meta)}
        )
        return packed

    def _load_process(self, path: Path) -> None:
        trainer = self._session.trainer
        try:
            with safe_open(str(path), framework="pt") as file:
                meta = loads(file.metadata()["neyman"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise checkpoints.refused(path.parent, f"{path} cannot be read ({error})") from error
        is_recut = self._check_cut(path, meta)
        batches: list[dict[str, Any]] = list(meta["batches"])
        device = trainer.accelerator.device
        for key, tensor in tensors.items():
            if key != "empty" and not RolloutStore.owns(key):
                place, name = key.split(":", 1)
                batches[int(place)][name] = tensor.to(device)
        trainer._step = 0 if is_recut else meta["step"]  # noqa: SLF001
        trainer._buffered_inputs = None if is_recut else batches or None  # noqa: SLF001
        for mode, values in meta["metrics"].items():
            trainer._metrics[mode].clear()  # noqa: SLF001
            for name, entries in values.items():
                trainer._metrics[mode][name].extend(entries)  # noqa: SLF001
        self._session.generation.store.unpack(tensors, meta["rollouts"])
