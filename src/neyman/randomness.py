"""Randomness keyed by its purpose, never by the time of the draw.

A generator that is consumed in order of arrival gives other numbers when a result comes late or a rank asks
twice. Here every draw has a key (seed, step, purpose, prompt, ...), so the same decision gets the same numbers
on every rank, after every resume, and whatever else was drawn before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np

PromptId = str | int
Key = str | int


def keyed_hash(*keys: Key) -> int:
    """Hash keys to 64 bits, the same in every process and on every platform.

    Strings and integers that print alike have different hashes.

    Examples:
        >>> keyed_hash("a", 1) == keyed_hash("a", 1), keyed_hash("1") == keyed_hash(1)
        (True, False)
    """
    digest = blake2b(digest_size=8)
    for key in keys:
        encoded = f"{type(key).__name__}:{key}".encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return int.from_bytes(digest.digest(), "little")


def keyed_rng(*keys: Key) -> np.random.Generator:
    """Return a generator whose stream depends on the keys alone."""
    return np.random.Generator(np.random.PCG64(keyed_hash(*keys)))


def keyed_seed(*keys: Key) -> int:
    """Return a seed below 2^30: with any draw added it fits the signed 32 bits that some engines parse."""
    return keyed_hash(*keys) >> 34


def keyed_epochs(size: int, count: int, *keys: Key) -> Iterator[list[int]]:
    """Yield ``count`` <= size distinct numbers below ``size`` at a time, each once an epoch, in a random order.

    The rest of an epoch comes first in the next one; the numbers that it holds come last there, so that none is twice
    in one list.
    """
    waiting, epoch = list[int](), 0
    while True:
        if len(waiting) < count:
            order = keyed_rng(*keys, epoch).permutation(size).tolist()
            held = set(waiting)
            waiting += [i for i in order if i not in held] + [i for i in order if i in held]
            epoch += 1
        yield waiting[:count]
        waiting = waiting[count:]


def fingerprint(ids: Sequence[PromptId]) -> str:
    """Return a short hash of a set of prompt ids in their order; ranges of equal content agree with lists.

    Examples:
        >>> fingerprint(range(3)) == fingerprint([0, 1, 2]), fingerprint([1, 0, 2]) == fingerprint([0, 1, 2])
        (True, False)
    """
    digest = blake2b(digest_size=12)
    for prompt_id in ids:
        encoded = f"{type(prompt_id).__name__}:{prompt_id}".encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()
