"""A long run on one pool needs no more memory than a short one, and a large pool little for each prompt."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

import neyman
from neyman import controller as controller_module

PRESETS = [
    ("vip", {}),
    ("dynamo", {"modulation": None}),
    ("sara", {"group_size": 4}),
    ("neyman", {}),
    ("neyman", {"group_size": 4}),
    ("ar3po", {}),
    ("speed", {}),
]
POOL = 40


def made(name, options):
    strategy = neyman.preset(name, **options)
    fills = strategy.close == "fixed_train"
    budget = neyman.Budget(rollouts=64 if fills else 32)
    controller = neyman.Controller(strategy, budget, train_rows=32 if fills else None, pool=range(POOL))
    if getattr(strategy.belief, "uses_features", True):
        features = np.random.default_rng(0).normal(size=(POOL, 4))
        controller.strategy.belief.register(range(POOL), features)
    return controller


def one_step(controller, rng, *, lost=0.0):
    """Run a step; of the results of its first round a share never comes, and the host closes the step then."""
    controller.begin(rng.choice(POOL, 8, replace=False).tolist())
    while not controller.is_done:
        outcomes = [
            neyman.Outcome(
                rollout_id=i, prompt_id=q.prompt_id, reward=float(rng.random() < q.prompt_id / POOL)
            )
            for q in controller.ask()
            for i in q.rollout_ids
        ]
        controller.tell(outcomes[: round(len(outcomes) * (1.0 - lost))])
        if lost:
            break
    controller.finish()


def held_bytes(controller):
    """Everything that the controller holds, pickled: no number that the machine or the allocator has a part in."""
    return len(pickle.dumps(controller))


@pytest.mark.parametrize(("name", "options"), PRESETS, ids=[f"{n}-{len(o)}" for n, o in PRESETS])
def test_a_long_run_needs_no_more_memory_than_a_short_one(name, options):
    controller, rng = made(name, options), np.random.default_rng(1)
    sizes = []
    for _ in range(160):
        one_step(controller, rng)
        sizes.append(held_bytes(controller))
    # 2,560 or more rollouts lie between, a byte of each would be seen; a step holds more or less by its groups.
    assert min(sizes[-20:]) - min(sizes[60:80]) < 2_500


def test_rollouts_that_never_come_are_given_up(monkeypatch):
    monkeypatch.setattr(controller_module, "_AWAITED", 100)
    controller, rng = made("vip", {}), np.random.default_rng(1)
    for _ in range(40):
        one_step(controller, rng, lost=0.5)
    state = controller.state_dict()
    # The oldest go first, each has its fate, and a result that comes after all is no error.
    lost = [32 * step + place for step in range(40) for place in range(16, 32)]
    assert [rollout for rollout, _ in state["late"]] == lost[-100:]
    aborted = controller.ledger.rollouts(neyman.Fate.ABORTED)
    assert aborted == 40 * 16 - 100
    assert controller.ledger.requested == controller.ledger.rollouts() + 100
    controller.begin(range(8))
    controller.tell([neyman.Outcome(rollout_id=16, prompt_id=0, reward=1.0)])
    assert controller.ledger.rollouts(neyman.Fate.LATE) == 0


LARGE = """
import json, resource, sys
import numpy as np
import neyman

def peak():
    # Kilobytes, but bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)

ids = [f"prompt-{i}" for i in range(250_000)]
features = np.random.default_rng(0).standard_normal((len(ids), 16), dtype=np.float32)
warm = neyman.beliefs.default(ids[:9], features[:9])
warm.update(ids[:9], [1] * 9, [2] * 9)  # loads what is loaded at the first use
warm.predict(ids[:9])
before = peak()
controller = neyman.Controller(neyman.preset("neyman"), neyman.Budget(rollouts=256), pool=ids)
controller.strategy.belief.register(ids, features)
rng = np.random.default_rng(1)
for step in range(4):
    controller.begin([ids[i] for i in rng.choice(len(ids), 32, replace=False)])
    while not controller.is_done:
        controller.tell([
            neyman.Outcome(rollout_id=r, prompt_id=q.prompt_id, reward=float(rng.random() < 0.5))
            for q in controller.ask() for r in q.rollout_ids
        ])
    controller.finish()
text = json.dumps(controller.state_dict())
controller.load_state_dict(json.loads(text))
print(peak() - before, len(text))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no module resource")
def test_a_pool_of_250_000_prompts_works_within_150_megabytes():
    run = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    grown, state = map(float, run.stdout.split())
    assert grown < 150  # megabytes above the ids and features that the host holds: 600 bytes for each prompt
    assert state < 20 * 250_000  # bytes of JSON, most of it when each prompt was opened
