"""A language model of about 0.1M parameters, built and warm-started locally in seconds, without any hub.

It is a real ``Qwen2ForCausalLM`` with a character tokenizer, saved as any Hugging Face model is, so TRL trains
it as it would train a large one. Nothing here changes global state: threads are the caller's business (one
thread is faster than two at this size: ``torch.set_num_threads(1)``).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from neyman import _checks
from neyman._checks import FloatP
from neyman.errors import ArgumentError, missing_extra
from neyman.tasks import rules
from neyman.tasks._task import Problem

Demonstrator: TypeAlias = Callable[[np.random.Generator, int], list[tuple[str, str]]]

END = "<end>"
_WARM_UP_SHARE = 0.1
_DECAY_SHARE = 0.4
# Prompts are a dozen tokens: a base of 10,000 would leave most rotary frequencies unused.
_ROPE_THETA = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """The size of a tiny policy, and its warm start.

    Attributes:
        alphabet: the characters it can read and write, each once.
        layers: transformer blocks.
        width: hidden size.
        heads: attention heads; divides ``width``.
        feed_forward: inner size of each block's MLP.
        positions: longest prompt plus completion, in tokens.
        steps: warm-start optimiser steps.
        batch: demonstrations in a step.
        learning_rate: peak of AdamW's rate.
        seed: of the weights and of the demonstrations.
    """

    alphabet: str = rules.ALPHABET
    layers: int = 2
    width: int = 64
    heads: int = 4
    feed_forward: int = 128
    positions: int = 256
    steps: int = 600
    batch: int = 128
    learning_rate: float = 5e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "feed_forward", "positions", "batch"):
            _checks.integer(name, getattr(self, name), low=1)
        for name in ("steps", "seed"):
            _checks.integer(name, getattr(self, name), low=0)
        _checks.real("learning_rate", self.learning_rate, low=0.0, open_low=True)
        if self.width % (2 * self.heads):
            raise ArgumentError(
                f"width must be a multiple of 2 * heads = {2 * self.heads} (rotary positions), got {self.width}"
            )
        if not self.alphabet or len(set(self.alphabet)) != len(self.alphabet):
            raise ArgumentError(
                f"alphabet must hold each character once and at least one, got {self.alphabet!r:.80}"
            )


def character_tokenizer(alphabet: str) -> Any:
    """Build a tokenizer, which pads on the left, with one token for each character and one that ends and pads.

    End and padding are one token: a padding token of its own could be sampled by the policy and would vanish
    from the decoded text, so several token sequences would read as the right answer. There is no unknown
    token: a character outside the alphabet is an error.

    Raises:
        MissingExtraError: ``transformers`` is not installed.

    >>> tokenizer = character_tokenizer("01=")
    >>> tokenizer("10=")["input_ids"], tokenizer.decode([1, 0, 3], skip_special_tokens=True)
    ([1, 0, 2], '10')
    """
    try:
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - an extra
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("transformers", "train", "character_tokenizer") from error
    vocabulary = {character: index for index, character in enumerate([*alphabet, END])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast: Any = PreTrainedTokenizerFast
    return fast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def new_model(config: PolicyConfig) -> Any:
    """Build the policy with fresh weights; the caller's torch RNG is left as it was.

    >>> 50_000 < sum(p.numel() for p in new_model(PolicyConfig()).parameters()) < 150_000
    True
    """
    try:
        import torch  # noqa: PLC0415 - an extra, and slow to import
        from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: PLC0415 - as torch
    except ImportError as error:
        raise missing_extra("transformers", "train", "tiny_policy") from error
    end = len(config.alphabet)
    # As a variable: transformers 5 takes rope_theta, and turns it into its new form, but does not declare it.
    make: Any = Qwen2Config
    shape = make(
        vocab_size=end + 1,
        hidden_size=config.width,
        intermediate_size=config.feed_forward,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=config.positions,
        tie_word_embeddings=True,
        rope_theta=_ROPE_THETA,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return Qwen2ForCausalLM(shape)


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, plateau, linear decay to a fiftieth."""
    done = step / steps
    return min(1.0, (done + 1.0 / steps) / _WARM_UP_SHARE) * min(1.0, (1.0 - done) / _DECAY_SHARE + 0.02)


def warm_start(
    model: Any,
    config: PolicyConfig,
    demonstrations: Demonstrator,
    progress: Callable[[int, float], None] | None = None,
) -> None:
    """Teach the model the demonstrations by supervised learning, in place.

    Minimises the mean of -log pi(completion token | before it) over completion tokens and the end token.

    Args:
        model: from `new_model`.
        config: has steps, batch, learning rate and seed.
        demonstrations: ``(rng, size) -> [(prompt, completion), ...]``; called once a step.
        progress: called with (steps done, loss) after each step.

    Raises:
        ArgumentError: a demonstration uses a character outside the alphabet.

    Cost: O(steps * batch * tokens * parameters); the default takes about 20 s on one core.
    """
    import torch  # noqa: PLC0415 - an extra, and slow to import

    codes = {character: index for index, character in enumerate(config.alphabet)}
    end = len(codes)
    rng = np.random.default_rng([config.seed, 3])
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98))
    model.train()
    for step in range(config.steps):
        pairs = demonstrations(rng, config.batch)
        try:
            rows = [[codes[c] for c in prompt + completion] + [end] for prompt, completion in pairs]
        except KeyError as error:
            raise ArgumentError(
                f"demonstrations use the character {error.args[0]!r}, which alphabet {config.alphabet!r} lacks; add it"
            ) from error
        length = max(map(len, rows))
        ids = torch.tensor([row + [end] * (length - len(row)) for row in rows])
        starts = torch.tensor([len(prompt) for prompt, _ in pairs])[:, None]
        ends = torch.tensor([len(row) for row in rows])[:, None]
        place = torch.arange(1, length)
        targets = ids[:, 1:].masked_fill((place < starts) | (place >= ends), -100)
        keep = int(length - starts.min())
        logits = model(ids[:, :-1], use_cache=False, logits_to_keep=keep).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets[:, -keep:].flatten())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * _rate(step, config.steps)
        optimiser.step()
        if progress is not None:
            progress(step + 1, float(loss.detach()))
    model.eval()


def cache_folder() -> Path:
    """Return the folder of built policies: ``$XDG_CACHE_HOME/neyman``, by default ``~/.cache/neyman``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neyman"


def _source() -> str:
    """Digest of the code that decides the result: editing it makes new policies, never stale ones."""
    files = [Path(__file__), Path(rules.__file__)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def build_policy(
    config: PolicyConfig,
    demonstrations: Demonstrator,
    *,
    name: str,
    cache: str | Path | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Path:
    """Return the folder of a warm-started policy, ready for ``from_pretrained``; built unless the cache holds it.

    The folder's name carries a hash of ``config``, ``name`` and the source of the tiny policy and the rules.
    It is filled beside its place and moved there at once: an interrupted build leaves nothing that looks whole.

    Args:
        config: the policy's size and warm start.
        demonstrations: of the right answers, see `warm_start`.
        name: names the demonstrations; must change when they do.
        cache: folder of built policies; `cache_folder` by default.
        progress: see `warm_start`; not called when the cache holds the policy.

    Guarantee: the same arguments on the same machine, thread count and torch give the same weights.
    """
    key = json.dumps([asdict(config), name, _source()], sort_keys=True)
    root = Path(cache) if cache is not None else cache_folder()
    safe = "".join(c if c.isalnum() or c in "-." else "_" for c in name)
    folder = root / f"{safe}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    model, tokenizer = new_model(config), character_tokenizer(config.alphabet)
    warm_start(model, config, demonstrations, progress)
    root.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".building-", dir=root))
    try:
        partial.chmod(0o755)
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        try:
            partial.rename(folder)
        except OSError:
            # Another process finished the same build first; its result equals ours.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def rules_policy(
    regime: str = "hard",
    *,
    seed: int = 0,
    cache: str | Path | None = None,
    progress: Callable[[int, float], None] | None = None,
    **options: Any,
) -> Path:
    """Return the folder of the default policy: warm-started on the demonstrations of `rules`.

    Regimes are those of `rules.demonstrated_rates`. The seed names the table of difficulty (as in `rules.rules_task`),
    the weights and the demonstrations; options are other fields of `PolicyConfig`. See `build_policy` for the rest.

    Cost: seconds to build, none when it is cached.
    """
    _checks.choice("regime", regime, rules.REGIMES)
    config = PolicyConfig(seed=seed, **options)
    teach = functools.partial(rules.demonstrate, regime=regime, seed=seed)
    return build_policy(config, teach, name=f"rules-{regime}-{seed}", cache=cache, progress=progress)


def load_policy(folder: str | Path) -> tuple[Any, Any]:
    """Return (model in evaluation mode and float32, tokenizer) from a local folder, without asking any hub."""
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - an extra, slow to import

    model: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    return model.float().eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)


def exact_success_rates(
    model: Any, tokenizer: Any, problems: Sequence[Problem], *, batch_size: int = 1024
) -> FloatP:
    """Compute each problem's success rate exactly, where the answer has one tokenization only.

    p(problem) = prod_t pi(answer token t | prompt, answer tokens before t) * pi(end | prompt, answer),
    at temperature 1 over the whole vocabulary, by teacher-forced forward passes of ``batch_size`` problems.

    Returns:
        Probabilities in float64, shape (problems,).

    Raises:
        ArgumentError: a prompt is a list of messages.

    Guarantee: equals the rate at which rollouts pass `ExactMatch`, if each answer has one tokenization only,
    sampling is at temperature 1 without top-k or top-p, and rollouts may be as long as the answer and the end
    token. Voided by half-precision sampling (TRL's ``bf16=True``): rates then agree to about 1e-2.
    Cost: one forward pass over all prompts and answers.
    """
    import torch  # noqa: PLC0415 - an extra, and slow to import

    rates = np.empty(len(problems))
    end = tokenizer.eos_token_id
    was_training = model.training
    model.eval()
    for start in range(0, len(problems), batch_size):
        part = problems[start : start + batch_size]
        if not all(isinstance(item.prompt, str) for item in part):
            raise ArgumentError("problems must have text prompts for exact rates, got chat messages")
        prompts = [tokenizer(item.prompt, add_special_tokens=False)["input_ids"] for item in part]
        rows = [
            p + tokenizer(item.answer, add_special_tokens=False)["input_ids"] + [end]
            for p, item in zip(prompts, part, strict=True)
        ]
        length = max(map(len, rows))
        # Padding stands behind all tokens that count: causal attention needs no mask.
        ids = torch.tensor([row + [end] * (length - len(row)) for row in rows], device=model.device)
        with torch.no_grad():
            logits = model(ids[:, :-1], use_cache=False).logits.double()
        log_p = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0].cpu().numpy()
        for row, (prompt, whole) in enumerate(zip(prompts, rows, strict=True)):
            rates[start + row] = math.exp(float(log_p[row, len(prompt) - 1 : len(whole) - 1].sum()))
    model.train(was_training)
    return rates
