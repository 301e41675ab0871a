"""Prompts as text, for embeddings and for the fingerprint of a training set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def prompt_text(prompt: Any, *, between_parts: str = "\n") -> str:
    r"""Return a prompt as text: of a conversation the contents of its messages, one to a line.

    Of a message with images or sounds only the text parts count, as the others have no form that stays the same.

    Args:
        prompt: text, or chat messages as mappings with a ``content``.
        between_parts: joins the parts of a message. An adapter keeps to one: checkpoints hold a hash of these texts.

    >>> prompt_text([{"role": "system", "content": "Add."}, {"role": "user", "content": [{"text": "1+1"}]}])
    'Add.\n1+1'
    """
    if isinstance(prompt, str):
        return prompt
    return "\n".join(_content(message, between_parts) for message in prompt or ())


def _content(message: Any, between_parts: str) -> str:
    content = message.get("content") if isinstance(message, Mapping) else message
    if isinstance(content, list):
        return between_parts.join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return str(content)
