"""Prompts, demonstrations, and the cache of starting policies."""

import numpy as np
import pytest
import torch

from neyman.errors import ArgumentError, StateError
from neyman.lab.task import REGIMES, WarmStart, demonstrate, demonstrated_rates, draw_prompts, starting_policy
from neyman.tasks import rules


def test_prompts_are_distinct_and_their_answers_follow_the_rules():
    train, test = draw_prompts(300, 200)
    both = torch.cat([train.tokens, test.tokens]).numpy()
    assert len(np.unique(both, axis=0)) == 500
    families, digits = train.tokens[:, 0].numpy() - 10, train.tokens[:, 1:5].numpy()
    np.testing.assert_array_equal(train.answers.numpy(), rules.apply_rules(families, digits))
    assert (train.metadata.sum(axis=1) == 2.0).all()
    assert (train.metadata.argmax(axis=1) == families).all()


def test_the_regimes_have_the_means_they_promise():
    means = {regime: demonstrated_rates(regime).mean() for regime in REGIMES}
    assert means["hard"] < 0.3 < 0.55 < means["ushape"] < 0.7 < means["easy"]
    assert (demonstrated_rates("hard") < 0.01).mean() > 0.3


def test_demonstrations_are_right_as_often_as_their_cell_says_and_else_by_another_rule():
    rates = np.full((16, 10), 0.3)
    shown = demonstrate(np.random.default_rng(0), 4000, rates)
    families, digits = shown.tokens[:, 0].numpy() - 10, shown.tokens[:, 1:5].numpy()
    right = (shown.answers.numpy() == rules.apply_rules(families, digits)).all(axis=1)
    assert abs(right.mean() - 0.3) < 5 * np.sqrt(0.21 / 4000)
    other = rules.apply_rules((families + 5) % 16, digits)
    assert (right | (shown.answers.numpy() == other).all(axis=1)).all()


def test_a_cached_policy_is_the_one_that_was_taught(tmp_path):
    config = WarmStart(regime="easy", steps=3, batch=8)
    steps = []
    first = starting_policy(config, cache=tmp_path, progress=lambda step, loss: steps.append(step))
    again = starting_policy(config, cache=tmp_path, progress=lambda step, loss: steps.append(step))
    assert steps == [1, 2, 3]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert len(list(tmp_path.iterdir())) == 1


def test_another_configuration_is_another_policy(tmp_path):
    starting_policy(WarmStart(regime="easy", steps=1, batch=8), cache=tmp_path)
    starting_policy(WarmStart(regime="hard", steps=1, batch=8), cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_cache_names_the_file_and_the_way_out(tmp_path):
    config = WarmStart(regime="easy", steps=1, batch=8)
    starting_policy(config, cache=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StateError, match=r"easy-0-.*delete the file"):
        starting_policy(config, cache=tmp_path)


def test_an_unknown_regime_lists_the_legal_ones():
    with pytest.raises(ArgumentError, match="'hard', 'ushape', 'easy'"):
        WarmStart(regime="medium")
