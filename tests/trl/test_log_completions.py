"""What TRL itself logs can be replayed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'neyman[cli]'")

from neyman.replay import read_logs


def test_a_log_of_trl_holds_every_rollout_once(bench):
    # A generation serves two optimiser steps, so TRL logs it twice.
    run = bench.train(log_completions=True, num_completions_to_print=0, max_steps=4, steps_per_generation=2)
    trace, found, texts = read_logs([Path(run.trainer.args.output_dir) / "completions"], keep_texts=True)
    assert {file.format for file in found.files} == {"TRL completions"}
    scored = Counter()
    solved = Counter()
    for prompts, completions in run.calls:
        for prompt, completion in zip(prompts, completions, strict=True):
            scored[prompt] += 1
            solved[prompt] += int(bench.grade(prompt, completion))
    read = {
        text: (
            int(trace.successes[trace.first[i] : trace.first[i + 1]].sum()),
            int(trace.trials[trace.first[i] : trace.first[i + 1]].sum()),
        )
        for i, text in enumerate(texts)
    }
    assert read == {prompt: (solved[prompt], count) for prompt, count in scored.items()}
    assert found.repeated == trace.trials.sum()
