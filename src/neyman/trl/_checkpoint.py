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
from typing import Any, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from neyman._files import checkpoints
from neyman._files.atomic import write_atomic
from neyman._files.checkpoints import STATE_FILE
from neyman._files.json import loads
from neyman.errors import StateError
from neyman.hosts.run import HostRun
from neyman.trl._host import buffer_of, metrics_of, output_folder, set_buffer, set_metrics, step_of
from neyman.trl._ranks import Ranks
from neyman.trl._rotation import held_back, rotate
from neyman.trl._store import RolloutStore
from neyman.trl._token_shaping import Factor

# The settings that cut a generation into steps: a half-used one fits no other cut.
_CUT = ("generation_batch_size", "steps_per_generation", "num_iterations")


def last_checkpoint(output_dir: str | PathLike[str]) -> str | None:
    """Return the newest whole checkpoint of a run, for ``trainer.train(resume_from_checkpoint=...)``.

    A checkpoint that a kill left unfinished is passed over, with a warning that names it. With it a script goes on by
    itself whenever it is started again, and from the start where no checkpoint was finished yet.

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
    """Saves and restores a run beside the trainer's own checkpoint files.

    ``neyman_process{rank}.safetensors`` holds each process's buffered generation and logs;
    ``neyman_state.json`` is written last, after every process is done, and so marks the checkpoint whole.
    """

    def __init__(
        self, trainer: Any, run: HostRun, ranks: Ranks, store: RolloutStore, factor: Factor | None
    ) -> None:
        self._trainer, self._run, self._ranks, self._store, self._factor = trainer, run, ranks, store, factor
        self._is_finished = True  # the checkpoint that was begun last

    @contextmanager
    def written(self, trial: Any) -> Iterator[None]:
        """Mark the checkpoint as unfinished, let the trainer write its files in the block, and add ours behind.

        Older checkpoints go only then: before, the newest whole one would be lost to a kill.
        """
        trainer = self._trainer
        folder = output_folder(trainer, trial) / f"checkpoint-{trainer.state.global_step}"
        self._is_finished = False

        def begin() -> None:
            if trainer.args.should_save:
                checkpoints.begin(folder)

        self._ranks.exchange(f"writing {folder}", begin)
        with held_back(trainer):
            yield
        self.finish(folder)
        if trainer.args.should_save:
            rotate(trainer, folder)

    def finish(self, folder: Path) -> None:
        """Add our files to those of the trainer, once, and so make the checkpoint whole."""
        if self._is_finished:
            return

        def write() -> None:
            folder.mkdir(parents=True, exist_ok=True)
            # Every process has its own rows in its buffer; the trainer's own files are the main process's.
            write_atomic(folder / self._process_file(), self._process_state())

        self._ranks.exchange(f"writing {folder}", write)  # until every process is done
        if self._trainer.args.should_save:
            modulation = {} if self._factor is None else self._factor.state_dict()
            state = {"processes": self._ranks.world, **self._run.state(), "modulation": modulation}
            checkpoints.seal(folder, state)
        self._is_finished = True

    def to_resume(self, wanted: str | bool | None) -> str | None:
        """Return the checkpoint to go on from, checked before anything is loaded; True takes the newest whole one.

        Raises:
            StateError: it is not whole, or there is none.
        """
        if not wanted:
            return None
        found = self._ranks.exchange("finding the checkpoint", lambda: [self._found(wanted)])
        return found[self._ranks.index]

    def _found(self, wanted: str | bool) -> str:
        if isinstance(wanted, bool):
            output = self._trainer.args.output_dir
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
                way out. A fault of one process's file is raised on all.
        """
        self._ranks.exchange(f"reading {checkpoint}", lambda: self._load(checkpoint))

    def _load(self, checkpoint: str) -> None:
        folder = Path(checkpoint)
        path = folder / STATE_FILE
        state = checkpoints.check(folder)
        if lacking := sorted({"controller", "modulation"} - set(state)):
            raise checkpoints.refused(folder, f"{path} lacks {' and '.join(lacking)}")
        if state.get("processes") != self._ranks.world:
            raise StateError(
                f"{path} has processes {state.get('processes')!r}, this run has {self._ranks.world}: resume on as many "
                f"processes as the run had, or {self._run.terms.new_run}"
            )
        checkpoints.check_content(folder, self._process_file(), state)
        self._run.restore(state, path)
        if self._factor is not None:
            self._factor.load_state_dict(state["modulation"])
        self._load_process(folder / self._process_file())

    def _cut(self) -> dict[str, int]:
        return {name: int(getattr(self._trainer.args, name)) for name in _CUT}

    def _check_cut(self, path: Path, meta: dict[str, Any]) -> bool:
        """Return whether generations are cut otherwise now, which only a whole one allows."""
        saved, here = meta["cut"], self._cut()
        if saved == here:
            return False
        # Between two generations the buffer is used up, so nothing of it has to fit the new cut.
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
        return f"neyman_process{self._ranks.index}.safetensors"

    def _process_state(self) -> bytes:
        """Pack this process's buffered batches, step counter and unlogged metrics."""
        batches = buffer_of(self._trainer)
        tensors = {
            f"{place}:{name}": value.detach().clone().contiguous().cpu()
            for place, batch in enumerate(batches)
            for name, value in batch.items()
            if isinstance(value, torch.Tensor)
        }
        plain = [{k: v for k, v in batch.items() if not isinstance(v, torch.Tensor)} for batch in batches]
        held, rollouts = self._store.pack()
        meta = {
            "step": step_of(self._trainer),
            "cut": self._cut(),
            "batches": plain,
            "metrics": metrics_of(self._trainer),
            "rollouts": rollouts,
        }
        # Unlike a pickle, a safetensors file runs no code when it is read.
        packed: bytes = save(
            tensors | held or {"empty": torch.zeros(1)}, metadata={"neyman": json.dumps(meta)}
        )
        return packed

    def _load_process(self, path: Path) -> None:
        try:
            with safe_open(str(path), framework="pt") as file:
                meta = loads(file.metadata()["neyman"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise checkpoints.refused(path.parent, f"{path} cannot be read ({error})") from error
        is_recut = self._check_cut(path, meta)
        batches: list[dict[str, Any]] = list(meta["batches"])
        device = self._trainer.accelerator.device
        for key, tensor in tensors.items():
            if key != "empty" and not RolloutStore.owns(key):
                place, name = key.split(":", 1)
                batches[int(place)][name] = tensor.to(device)
        set_buffer(self._trainer, 0 if is_recut else meta["step"], None if is_recut else batches or None)
        set_metrics(self._trainer, meta["metrics"])
        self._store.unpack(tensors, meta["rollouts"])
