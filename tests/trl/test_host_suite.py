"""The contract of adapters, kept by the real TRL trainer, and broken on purpose."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trl import GRPOTrainer

from neyman.hosts.run import HostRun
from neyman.testing import BrokenContract, HostCase, HostRecord, HostStep, HostSuite
from neyman.trl import _generation, _session
from neyman.trl._session import Session


@dataclass
class Watched:
    """What one training has generated and scored since its last step."""

    steps: list[HostStep] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=list)


class Driver:
    """Runs trainings through `neyman.trl.adaptive`.

    Args:
        bench: builds trainers.
        folder: for checkpoints.
    """

    def __init__(self, bench: Any, folder: Path) -> None:
        self._bench, self._folder = bench, folder

    def train(self, case: HostCase) -> HostRecord:
        from datasets import Dataset

        self._folder.mkdir(exist_ok=True)
        out = self._folder / f"run-{len(list(self._folder.iterdir()))}"
        texts = {f"{'ABCDEFGH'[i % 8]}{i * 7 % 10}{i % 10}{i // 10}=": i for i in case.prompts}
        seen = Watched()

        def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
            return [case.reward(texts[p], c) for p, c in zip(prompts, completions, strict=True)]

        ours = {
            "max_rollouts": case.max_rollouts,
            "retries": case.retries,
            "accept_strategy_change": case.accepts_change,
        }
        run = self._bench.build(
            GRPOTrainer,
            case.strategy,
            rewards=reward,
            dataset=Dataset.from_list([{"prompt": text} for text in texts]),
            ours=ours,
            output_dir=str(out),
            per_device_train_batch_size=case.rows,
            num_generations=case.group_size,
            max_steps=case.steps,
            save_strategy="steps" if case.save_after else "no",
            save_steps=case.save_after or 500,
        )
        self._watch(run.trainer, texts, seen)
        resume = None if case.resume is None else shutil.copytree(case.resume, out / case.resume.name)
        run.trainer.train(**({} if resume is None else {"resume_from_checkpoint": str(resume)}))
        logs = [log for log in run.trainer.state.log_history if "loss" in log][-len(seen.steps) :]
        for step, log in zip(seen.steps, logs, strict=True):
            step.metrics = log
        return HostRecord(
            steps=seen.steps,
            controller=getattr(run.trainer, "controller", None),
            checkpoint=out / f"checkpoint-{case.save_after}" if case.save_after else None,
        )

    @staticmethod
    def _watch(trainer: Any, texts: dict[str, int], seen: Watched) -> None:
        """Record what is scored, and each batch as it is trained."""
        scores = "base_calculate_rewards" if hasattr(trainer, "_neyman") else "_calculate_rewards"
        score, generate, tokenizer = (
            getattr(trainer, scores),
            trainer._generate_and_score_completions,
            trainer.processing_class,
        )

        def scored(inputs: Any, prompts: Any, completions: Any, *args: Any) -> Any:
            seen.answers += [(texts[p], c) for p, c in zip(prompts, completions, strict=True)]
            return score(inputs, prompts, completions, *args)

        def generated(inputs: Any) -> Any:
            output = generate(inputs)
            prompts = tokenizer.batch_decode(output["prompt_ids"], skip_special_tokens=True)
            ids = [
                row[mask.bool()]
                for row, mask in zip(output["completion_ids"], output["completion_mask"], strict=True)
            ]
            answers = tokenizer.batch_decode(ids, skip_special_tokens=True)
            batch = trainer._neyman.batch if hasattr(trainer, "_neyman") else None
            filled = np.zeros(len(answers), dtype=bool) if batch is None else batch.groups < 0
            rows = [
                None if is_filler else (texts[p], c)
                for p, c, is_filler in zip(prompts, answers, filled, strict=True)
            ]
            advantages = output["advantages"].double().numpy().copy()
            seen.steps.append(HostStep(rows=rows, advantages=advantages, generated=list(seen.answers)))
            seen.answers.clear()
            return output

        setattr(trainer, scores, scored)
        trainer._generate_and_score_completions = generated


class TRLSuite(HostSuite):
    __test__ = False
    group_setting = "num_generations"

    @pytest.fixture(autouse=True)
    def _trainer(self, bench: Any, tmp_path: Path) -> None:
        self._driver = Driver(bench, tmp_path / "runs")

    def make(self) -> Driver:
        return self._driver


class TestGRPO(TRLSuite):
    pass


def _suite(bench: Any, tmp_path: Path) -> TRLSuite:
    suite = TRLSuite()
    suite._driver = Driver(bench, tmp_path / "runs")
    return suite


def zeros_for_missing(*place: Any) -> Any:
    from neyman.hosts.outcomes import outcome

    rollout_id, prompt_id, reward, verdict, n_tokens = place
    return outcome(rollout_id, prompt_id, 0.0 if reward != reward else reward, verdict, n_tokens)


BROKEN = {
    "missing is 0": (
        lambda patch: patch.setattr(_generation, "outcome", zeros_for_missing),
        HostSuite.test_missing_results_are_drawn_again_and_never_become_rewards,
    ),
    "by rollouts": (
        lambda patch: patch.setattr(Session, "_weights", lambda *_: 1.0),
        HostSuite.test_unequal_groups_weigh_prompts_equally,
    ),
    "rows slip": (
        lambda patch: patch.setattr(
            _session, "row_advantages", lambda *args, **named: np.roll(ROW_ADVANTAGES(*args, **named), 1)
        ),
        HostSuite.test_every_row_is_a_rollout_of_its_own_prompt_with_its_own_reward,
    ),
    "forgets": (
        lambda patch: patch.setattr(HostRun, "restore", lambda *_: None),
        HostSuite.test_resumed_equals_never_stopped,
    ),
}  # fmt: skip
ROW_ADVANTAGES = _session.row_advantages


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_adapter_is_caught(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    breaks, check = BROKEN[name]
    breaks(monkeypatch)
    with pytest.raises(BrokenContract):
        check(_suite(bench, tmp_path))
