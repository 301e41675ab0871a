"""Held-out accuracy: exact where the task allows it, else from one answer for each problem."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from neyman.config import Config
from neyman.tasks import Problem, Task, Verifier, completion_text, exact_success_rates

_BATCH = 64
_log = logging.getLogger("neyman.train")


def evaluation(
    config: Config, task: Task, verifier: Verifier, tokenizer: Any, seed: int
) -> Callable[[Any, int], dict[str, Any] | None]:
    """Return the measurement of a run: ``(model, step) -> {"accuracy", "problems", "exact"}``.

    It is None where no answer could be judged: a missing accuracy is not 0.

    Guarantee: the training's own randomness is left as it was.
    """

    def measure(model: Any, step: int) -> dict[str, Any] | None:
        if config.is_exact:
            rates = exact_success_rates(model, tokenizer, task.test)
            return {"accuracy": float(rates.mean()), "problems": len(rates), "exact": True}
        devices = [model.device.index or 0] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(1_000_003 * seed + step)
            verdicts = _sampled(config, task.test, verifier, model, tokenizer)
        judged = [verdict for verdict in verdicts if verdict is not None]
        if not judged:
            _log.warning("step %d: no held-out answer could be judged, so there is no accuracy", step)
            return None
        return {"accuracy": sum(judged) / len(judged), "problems": len(judged), "exact": False}

    return measure


def _sampled(
    config: Config, problems: list[Problem], verifier: Verifier, model: Any, tokenizer: Any
) -> list[bool | None]:
    """Answer each problem once, as in training."""
    texts: list[str] = []
    was_training = model.training
    model.eval()
    for start in range(0, len(problems), _BATCH):
        inputs = _inputs(tokenizer, problems[start : start + _BATCH]).to(model.device)
        with torch.no_grad():
            ids = model.generate(
                **inputs,
                do_sample=True,
                temperature=config.trainer.temperature,
                top_k=0,
                max_new_tokens=config.trainer.max_completion_length,
                pad_token_id=tokenizer.pad_token_id,
            )
        answers = tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        texts += [completion_text(answer) for answer in answers]
    model.train(was_training)
    return verifier.verify(texts, [item.answer for item in problems], problems)


def _inputs(tokenizer: Any, problems: list[Problem]) -> Any:
    """Return the prompts' tokens as TRL makes them: plain text gets the tokenizer's special tokens, such as BOS."""
    # Prompts are of one kind in a task, as a dataset's column has one type.
    is_plain = isinstance(problems[0].prompt, str)
    texts = [
        item.prompt
        if is_plain
        else tokenizer.apply_chat_template(item.prompt, tokenize=False, add_generation_prompt=True)
        for item in problems
    ]
    return tokenizer(
        texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=is_plain
    )
