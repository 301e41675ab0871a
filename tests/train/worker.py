"""Stands for ``python -m neyman.train`` in tests of the orchestration: it trains nothing, in milliseconds.

What it does hangs on the strategy: "vip" fails in step 2, "sara" never ends, "dynamic-sampling" is killed,
others end well.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from neyman._jobs import end_with_parent
from neyman.train._folder import RunFolder

FATES = ("trained", "uniform", "abandoned", "surplus", "dropped", "failed")


def step(folder, number):
    group = {
        "prompt_id": "a",
        "predicted": 0.5,
        "uncertainty": 0.1,
        "rollouts": 8,
        "successes": 4,
        "trials": 8,
    }
    spent = {"rollouts": 8 * number, "tokens": 40 * number}
    folder.append(
        {
            "event": "step",
            "step": number,
            **spent,
            "seconds": 0.1 * number,
            "report": {"effective_ratio": 1.0},
            "account": {"trained": spent},
            "groups": [{**group, "outcome": "trained", "reason": "why"}],
            "trainer": {"loss": 0.0},
        }
    )
    folder.append(
        {"event": "eval", "step": number, **spent, "accuracy": 0.1 * number, "problems": 9, "exact": True}
    )


def main(work, out, strategy="", seed="0"):
    end_with_parent()
    if work == "prepare":
        if (Path(out) / "broken").exists() or os.environ.get("BROKEN"):
            sys.exit("the task is broken; mend it")
        (Path(out) / "prepare.json").write_text(json.dumps({"done": 5, "steps": 5}))
        return
    folder = RunFolder(Path(out) / RunFolder.name(strategy, int(seed)))
    head = {"strategy": strategy, "seed": int(seed), "task": "t", "budget_rollouts_per_step": 8, "steps": 3}
    folder.begin({**head, "estimator": "rloo", "config": {}})
    folder.append(
        {
            "event": "eval",
            "step": 0,
            "rollouts": 0,
            "tokens": 0,
            "accuracy": 0.0,
            "problems": 9,
            "exact": True,
        }
    )
    for number in (1, 2, 3):
        step(folder, number)
        if strategy == "vip" and number == 2:
            raise RuntimeError("the policy exploded")
        if strategy == "dynamic-sampling":
            os.kill(os.getpid(), signal.SIGKILL)
        while strategy == "sara":
            time.sleep(0.05)
    folder.finish(0.3)


if __name__ == "__main__":
    main(*sys.argv[1:])
