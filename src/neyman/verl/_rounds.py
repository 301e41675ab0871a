"""One step's rollouts through verl's agent loops: requests are submitted, and reported as they settle.

verl keeps a tag for each submitted prompt (``pending``, ``running``, ``finished``, ``failure``) and stores the outputs
of its session s under the keys ``{uid}_{s}_0``, ``{uid}_{s}_1``, ... Every request gets a uid of its own, with as many
sessions as it has rollouts, so that session s *is* the s-th rollout of the request and nothing is joined by place.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import transfer_queue as tq
from transfer_queue import KVBatchMeta

from neyman.controller import Batch, Controller, MissingReward, Outcome, Request, Status
from neyman.errors import ContractError, RunFailedError
from neyman.hosts.outcomes import outcome

PARTITION = "train"
_SETTLED = ("finished", "failure")
_SOONEST, _LATEST = 0.02, 1.0  # seconds between two looks at the queue
_SILENCE = 120.0  # seconds without news after which the workers are asked whether they live
_log = logging.getLogger("neyman")

Submit = Callable[[Sequence[Request], Sequence[str]], None]
Tags = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Drawn:
    """The rows of a step in verl's queue: the keys of each rollout, its final output last, and the tag of each key."""

    keys: dict[int, list[str]] = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)


@final
class Rounds:
    """Draws a step.

    Args:
        controller: decides.
        submit: registers requests under their uids and hands them to verl's agent loops.
        success: reads the verified outcome off a reward and the values that its function returned beside it.
        check_alive: raises when an agent loop is gone.
        barrier: whether a round waits for all its rollouts, reported at once in the order of their requests.
    """

    def __init__(
        self,
        controller: Controller,
        submit: Submit,
        success: Callable[[float, dict[str, Any]], bool | MissingReward],
        check_alive: Callable[[], None],
        *,
        barrier: bool,
    ) -> None:
        self._controller, self._submit, self._success = controller, submit, success
        self._check_alive, self._barrier = check_alive, barrier
        self._out: dict[str, Request] = {}
        self.drawn = Drawn()

    def begin(self, candidates: Sequence[int], policy_version: int) -> None:
        """Open a step and submit its first round."""
        self.drawn = Drawn()
        self._controller.begin(list(dict.fromkeys(candidates)), policy_version=policy_version)
        self._ask()

    def _ask(self) -> None:
        if requests := self._controller.ask():
            uids = [uuid.uuid4().hex for _ in requests]
            self._out |= zip(uids, requests, strict=True)
            self._submit(requests, uids)

    def finish(self) -> Batch:
        """Draw until the strategy is done and nothing is out any more; return the rows to train on.

        Rollouts that are still running when enough are there are waited for: verl puts its engines to sleep next.
        """
        wait, quiet_since = _SOONEST, time.monotonic()
        while self._out or not self._controller.is_done:
            if self._tell_settled():
                wait, quiet_since = _SOONEST, time.monotonic()
                self._ask()
            elif not self._out:
                raise RunFailedError("the strategy is not done, asks for nothing, and no rollout is out")
            else:
                time.sleep(wait)  # ever longer: each look reads all tags of the queue
                wait = min(2 * wait, _LATEST)
                quiet_since = self._complain(quiet_since)
        return self._controller.finish()

    def _complain(self, since: float) -> float:
        if (now := time.monotonic()) - since < _SILENCE:
            return since
        self._check_alive()
        rollouts = sum(len(request.rollout_ids) for request in self._out.values())
        _log.warning(
            "no rollout came for %d s; %d rollouts of %d prompts are awaited",
            now - since,
            rollouts,
            len(self._out),
        )
        return now

    def _tell_settled(self) -> bool:
        """Report requests that have settled since the last look; return whether any had."""
        tags: Tags = (tq.kv_list(partition_id=PARTITION) or {}).get(PARTITION, {})
        settled = [uid for uid in self._out if tags.get(uid, {}).get("status") in _SETTLED]
        if not settled or (self._barrier and len(settled) < len(self._out)):
            return False
        sessions = _sessions(tags, settled)
        # An agent loop may return several outputs for a session; verl puts the reward on the last.
        finals = [keys[-1] for keys in sessions.values()]
        verdicts = dict(zip(finals, _verdicts(finals), strict=True))
        outcomes = []
        for uid in settled:
            request = self._out.pop(uid)
            for session, rollout_id in enumerate(request.rollout_ids):
                keys = sessions.get((uid, session), [])
                outcomes.append(self._outcome(request.prompt_id, rollout_id, keys, tags, verdicts))
                self.drawn.keys[rollout_id] = keys
                self.drawn.tags |= {key: tags[key] for key in keys}
        # The prompts' own tags, which nothing else would clear.
        tq.kv_clear(keys=settled, partition_id=PARTITION)
        self._controller.tell(outcomes)
        return True

    def _outcome(
        self, prompt_id: Any, rollout_id: int, keys: list[str], tags: Tags, verdicts: dict[str, Verdict]
    ) -> Outcome:
        if not keys:
            return Outcome(
                rollout_id=rollout_id,
                prompt_id=prompt_id,
                reward=None,
                status=Status.FAILED,
                error="its agent loop raised, or returned nothing; verl's log has it under _run_prompt",
            )
        reward, extra = verdicts[keys[-1]]
        return outcome(
            rollout_id,
            prompt_id,
            reward,
            self._success(reward, extra) if math.isfinite(reward) else None,
            sum(int(tags[key]["response_len"]) for key in keys),
        )

    def take(self, batch: Batch) -> KVBatchMeta:
        """Return the queue's rows of a batch, in its order, and clear those that do not train."""
        keys = [key for rollout_id in batch.rollout_ids.tolist() for key in self.drawn.keys[rollout_id]]
        if len(set(keys)) != len(keys):
            raise ContractError("a row stands in the batch twice, which verl's queue cannot hold")
        # Nothing else clears the others, and they would fill the queue from step to step.
        trained = set(keys)
        if unused := [key for key in self.drawn.tags if key not in trained]:
            tq.kv_clear(keys=unused, partition_id=PARTITION)
        return KVBatchMeta(partition_id=PARTITION, keys=keys, tags=[self.drawn.tags[key] for key in keys])


Verdict = tuple[float, dict[str, Any]]


def _sessions(tags: Tags, uids: Iterable[str]) -> dict[tuple[str, int], list[str]]:
    """Return the keys of each (uid, session) of some uids, by the order of its outputs."""
    wanted, found = set(uids), defaultdict(list)
    for key in tags:
        uid, _, rest = key.partition("_")
        if rest and uid in wanted:
            session, _, index = rest.partition("_")
            found[uid, int(session)].append((int(index), key))
    return {place: [key for _, key in sorted(keys)] for place, keys in found.items()}


def _verdicts(keys: list[str]) -> list[Verdict]:
    """Return the reward of each key, and the values that its function returned beside it."""
    if not keys:
        return []
    data = tq.kv_batch_get(keys=keys, partition_id=PARTITION, select_fields=["rm_scores", "extra_fields"])
    verdicts = []
    for scores, extra in zip(data["rm_scores"], data["extra_fields"], strict=True):
        fields = getattr(extra, "data", extra)
        verdicts.append((float(scores.sum()), dict(fields.get("reward_extra_info") or {})))
    return verdicts
