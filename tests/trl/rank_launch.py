"""Starts gloo ranks by forking, so that all launches import the libraries once, and writes what each rank met.

``rank_launch.py POLICY OUT LAUNCHES``: LAUNCHES is JSON, name -> {"world": N, "scenarios": {name: settings}}, and
perhaps "timeout", the process group's in seconds. The ranks of a launch run its scenarios one after another in one
process group, whatever becomes of them.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
from rank_faults import Fault
from rank_script import run

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip
MOST_SECONDS = 240


def count_collectives() -> list[str]:
    """Return a list that each collective of this process is noted in: its name, what tensor, and who asked.

    Noted are calls of `torch.distributed`'s functions from Python; DDP reduces gradients without any.
    """
    made: list[str] = []
    for name in COLLECTIVES:
        original = getattr(dist, name)

        @functools.wraps(original)
        def noted(*args, _name=name, _original=original, **kwargs):
            tensors = [f"{v.dtype}{list(v.shape)}" for v in args if isinstance(v, torch.Tensor)]
            made.append(" ".join([_name, *tensors, *_our_part()]))
            return _original(*args, **kwargs)

        setattr(dist, name, noted)
    return made


def _our_part() -> list[str]:
    """Return "ours" and the part of the adapter that asked, with nothing of the trainer between; else nothing."""
    frame = sys._getframe(2)
    while frame is not None and "accelerate" in frame.f_code.co_filename:
        frame = frame.f_back
    # A decorator of torch's stands between the two.
    while frame is not None and f"{os.sep}torch{os.sep}" in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is None or f"neyman{os.sep}trl{os.sep}" not in frame.f_code.co_filename:
        return []
    while frame.f_code.co_filename.endswith("_ranks.py") and frame.f_back is not None:
        frame = frame.f_back  # which exchanges for the others
    return ["ours", Path(frame.f_code.co_filename).stem.lstrip("_")]


def serve(policy: str, out: Path, scenarios: dict, timeout: float | None) -> None:
    """Run the scenarios on this rank."""
    if timeout is not None:  # TRL's own argument for it does nothing on CPUs
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout))
    made, seen = count_collectives(), {}
    for name, settings in scenarios.items():
        made.clear()
        result = {"error": None}
        try:
            fault = Fault(settings.pop("fault", ""))
            result |= run(policy, out / name, fault=fault, **settings)
        except Exception as error:  # noqa: BLE001 - the tests look at it
            result["error"] = [type(error).__name__, str(error), list(getattr(error, "__notes__", ()))]
        seen[name] = {**result, "collectives": list(made)}
    (out / f"rank{os.environ['RANK']}.json").write_text(json.dumps(seen))


def launch(
    policy: str, out: Path, world: int, scenarios: dict, timeout: float | None = None
) -> list[int | None]:
    """Run a launch and return the ranks' exit codes; a rank that hangs is killed and has none."""
    out.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world,
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # fmt: skip
                os.environ.update({name: str(value) for name, value in place.items()})
                serve(policy, out, scenarios, timeout)
                code = 0
            except BaseException:  # noqa: BLE001 - the child ends here
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(pid)
    return [_ended(pid, time.monotonic() + MOST_SECONDS) for pid in children]


def _ended(pid: int, deadline: float) -> int | None:
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def main() -> None:
    policy, out, launches = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    torch.set_num_threads(1)
    codes = {name: launch(policy, out / name, **settings) for name, settings in launches.items()}
    (out / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main()
