"""Runs made up by a small generator, in the very files that ``neyman train`` writes."""

import json
from pathlib import Path

import numpy as np

from neyman.report import Groups

# How a strategy behaves: gain in accuracy, speed of learning, share abandoned, whether it predicts.
STYLES = {
    "uniform": {"speed": 1.0, "ratio": 0.45, "abandoned": 0.0, "predicts": False},
    "vip": {"speed": 1.5, "ratio": 0.62, "abandoned": 0.0, "predicts": True},
    "sara": {"speed": 1.3, "ratio": 0.97, "abandoned": 0.3, "predicts": True},
    "dynamo": {"speed": 1.1, "ratio": 0.55, "abandoned": 0.0, "predicts": True},
}


def write_run(
    root,
    strategy="uniform",
    seed=0,
    *,
    steps=12,
    budget=128,
    prompts=16,
    every=2,
    noise=0.01,
    task="rules/hard",
    finished=True,
    evals=True,
    prompt_prefix="p",
    reason="allocated",
):
    """Write one run directory and return it."""
    folder = Path(root) / f"{strategy}-seed{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    head = {
        "version": 1,
        "strategy": strategy,
        "seed": seed,
        "task": task,
        "budget_rollouts_per_step": budget,
        "steps": steps,
        "estimator": "rloo",
        "config": {"strategy": {"name": strategy}, "seed": seed, "learning_rate": 3e-4},
    }
    (folder / "run.json").write_text(json.dumps(head))
    lines = list(events(strategy, seed, steps, budget, prompts, every, noise, evals, prompt_prefix, reason))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        (folder / "done.json").write_text(json.dumps({"finished": True, "seconds": 1.5 * steps}))
    return folder


def events(strategy, seed, steps, budget, prompts, every, noise, evals, prefix, reason):
    style = STYLES.get(strategy, STYLES["vip"])
    shared = np.random.default_rng(1000 + seed)  # what a seed does to every strategy
    rng = np.random.default_rng([seed, len(strategy), ord(strategy[0])])
    base, final = 0.22 + shared.normal(0, 0.01), 0.56 + shared.normal(0, 0.015)
    total, tokens = 0, 0
    account = {
        fate: {"rollouts": 0, "tokens": 0}
        for fate in ("trained", "uniform", "abandoned", "surplus", "failed")
    }
    account |= dict.fromkeys(("dropped", "expired", "timeout", "aborted", "late", "padding"), 0)
    if evals:
        yield _eval(0, 0, 0, base)
    for step in range(1, steps + 1):
        groups = _groups(rng, style, budget, prompts, step, prefix, reason)
        spent = sum(g["rollouts"] for g in groups)
        total, tokens = total + spent, tokens + spent * 5 + int(rng.integers(20))
        mixed = 0
        for g in groups:
            fate = "uniform" if g["successes"] in (0, g["trials"]) else "trained"
            mixed += fate == "trained"
            if g["outcome"] == "abandoned":
                fate = "abandoned"
            failed = g["rollouts"] - g["trials"]
            for name, count in ((fate, g["trials"]), ("failed", failed)):
                account[name]["rollouts"] += count
                account[name]["tokens"] += 5 * count
        kept = [g for g in groups if g["outcome"] == "trained"]
        sizes = [g["trials"] for g in kept]
        report = {
            "rollouts": spent, "tokens": 5 * spent, "groups": len(kept), "effective_groups": mixed,
            "effective_ratio": mixed / max(len(kept), 1), "group_size_mean": float(np.mean(sizes)),
            "group_size_min": min(sizes), "group_size_max": max(sizes), "rounds": 1 + (strategy == "sara"),
            "success_rate": sum(g["successes"] for g in groups) / max(sum(g["trials"] for g in groups), 1),
        }  # fmt: skip
        if strategy == "sara":
            report |= {"signal_kept": 0.93, "miss_rate": 0.04, "yield_margin": 1.2}
        fade = np.exp(-step / steps)
        yield {
            "event": "step", "step": step, "rollouts": total, "tokens": tokens, "seconds": 1.5 * step,
            "report": report, "account": json.loads(json.dumps(account)), "groups": groups,
            "trainer": {
                "loss": float(rng.normal(0, 0.02)), "grad_norm": float(0.4 + 0.5 * fade + rng.normal(0, 0.08)),
                "reward": report["success_rate"], "entropy": float(0.3 + 0.9 * fade + rng.normal(0, 0.02)),
            },
        }  # fmt: skip
        if evals and (step % every == 0 or step == steps):
            learned = (final - base) * (1 - np.exp(-2.0 * style["speed"] * step / steps))
            yield _eval(step, total, tokens, float(np.clip(base + learned + rng.normal(0, noise), 0, 1)))


def _eval(step, rollouts, tokens, accuracy):
    return {"event": "eval", "step": step, "rollouts": rollouts, "tokens": tokens, "accuracy": accuracy,
            "problems": 500, "exact": True}  # fmt: skip


def _groups(rng, style, budget, prompts, step, prefix, reason):
    truth = rng.beta(0.7, 0.9, prompts)
    guess = np.clip(truth + rng.normal(0, 0.1, prompts), 0.01, 0.99)
    weight = np.sqrt(guess * (1 - guess)) if style["predicts"] else np.ones(prompts)
    counts = np.maximum(2, np.floor(budget * weight / weight.sum())).astype(int)
    groups = []
    for q in range(prompts):
        trials = int(counts[q] - (rng.random() < 0.02))
        successes = int(rng.binomial(trials, truth[q]))
        pure = successes in (0, trials)
        abandoned = pure and rng.random() < 2 * style["abandoned"]
        groups.append({
            "prompt_id": f"{prefix}{(step * prompts + q) % 97}",
            "predicted": float(guess[q]) if style["predicts"] else None,
            "uncertainty": 0.1 if style["predicts"] else None,
            "rollouts": int(counts[q]), "successes": successes, "trials": trials,
            "outcome": "abandoned" if abandoned else "trained", "reason": reason,
        })  # fmt: skip
    return groups


def make_groups(predicted, rollouts, successes, trials, ids=None, reason=None):
    """Return groups of one step."""
    n = len(rollouts)
    return Groups(
        step=np.ones(n, dtype=np.int64),
        prompt_id=tuple(ids or range(n)),
        predicted=np.array(predicted, dtype=float),
        uncertainty=np.full(n, np.nan),
        rollouts=np.array(rollouts, dtype=np.int64),
        successes=np.array(successes, dtype=np.int64),
        trials=np.array(trials, dtype=np.int64),
        outcome=("trained",) * n,
        reason=tuple(reason or [""] * n),
    )
