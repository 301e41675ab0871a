"""A check that a rollout function answers the prompts of its own rows, as far as its prompt ids show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neyman.errors import ContractError
from neyman.randomness import PromptId

Tokens = tuple[int, ...]
_SHOWN = 3  # rows that an error names one by one


def check_own_prompts(
    trainer: Any, prompts: Sequence[Any], asked: Sequence[PromptId], prompt_ids: Sequence[Any]
) -> None:
    """Refuse rows that carry another prompt's ids: their rewards and log-probabilities would be of the wrong prompt.

    A rollout function may render prompts as it likes (a template of its own, tokens added, a prompt cut short), so a
    row is refused only where its ids are exactly those that TRL would make of another prompt of the same call, and
    are neither those of the row's own, nor hold them, nor are a part of them.

    Args:
        trainer: the adapted trainer.
        prompts: the prompt of each row, as the function was called with it.
        asked: the prompt's id of each row.
        prompt_ids: returned by the function; not checked here where there is another number of them.

    Raises:
        ContractError: names the rows, the prompts that they were asked for and those that they carry.

    Guarantee: none where the function renders prompts otherwise than TRL: then no row equals another prompt.
    Cost: tokenizes each prompt of the call once in each of two forms.
    """
    if len(prompt_ids) != len(prompts):
        return
    owners: dict[Tokens, PromptId] = {}
    own: dict[PromptId, list[Tokens]] = {prompt_id: [] for prompt_id in asked}
    for begun in (True, False):
        for prompt_id, tokens in _rendered(trainer, begun, prompts, asked).items():
            owners.setdefault(tokens, prompt_id)
            own[prompt_id].append(tokens)
    wrong = []
    for row, (prompt_id, ids) in enumerate(zip(asked, prompt_ids, strict=True)):
        tokens = tuple(int(token) for token in ids)
        if tokens in owners and not any(_are_related(tokens, mine) for mine in own[prompt_id]):
            wrong.append(
                f"row {row} was asked prompt {prompt_id!r} and has those of prompt {owners[tokens]!r}"
            )
    if wrong:
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ContractError(
            f"the rollout_func returned prompt_ids of other prompts in {len(wrong)} of {len(prompts)} rows: "
            f"{'; '.join(wrong[:_SHOWN])}{more}. It must return one row for each prompt, in their order; does an "
            "engine answer in an order of its own?"
        )


def _rendered(
    trainer: Any, begun: bool, prompts: Sequence[Any], asked: Sequence[PromptId]
) -> dict[PromptId, Tokens]:
    """Return the ids of each prompt, with an answer begun or not; none where a prompt cannot be rendered so."""
    processor = trainer.processing_class
    tokenizer = getattr(processor, "tokenizer", processor)

    def render(prompt: Any) -> Any:
        if isinstance(prompt, str):
            return tokenizer(prompt, add_special_tokens=begun)["input_ids"]
        return processor.apply_chat_template(
            prompt,
            tools=getattr(trainer, "tools", None) or None,
            chat_template=getattr(trainer, "chat_template", None),
            add_generation_prompt=begun,
            tokenize=True,
            return_dict=False,
            **(getattr(trainer, "chat_template_kwargs", None) or {}),
        )

    first = dict(zip(reversed(asked), reversed(prompts), strict=True))
    try:
        return {prompt_id: tuple(int(t) for t in render(prompt)) for prompt_id, prompt in first.items()}
    except Exception:  # noqa: BLE001 - whatever a template raises: TRL did not need it, the function renders itself
        return {}


def _are_related(one: Tokens, other: Tokens) -> bool:
    """Whether one is the other, or a stretch of it."""
    short, long = sorted((one, other), key=len)
    size = len(short)
    return any(long[at : at + size] == short for at in range(len(long) - size + 1))
