"""The policy's cache, its sampling and its exact success rates agree with one another."""

import numpy as np
import pytest
import torch

from neyman.errors import ArgumentError
from neyman.lab.policy import Policy, Shape, rollout_uniforms
from neyman.lab.task import SHAPE, draw_prompts


def full_log_probabilities(policy, tokens):
    """Next-token distributions of every position of whole sequences, without any cache."""
    hidden, _ = policy.read(tokens, keep=tokens.shape[1])
    return policy.head(hidden).log_softmax(-1)


def test_the_policy_has_about_a_tenth_of_a_million_parameters():
    assert 90_000 < sum(p.numel() for p in Policy(SHAPE).parameters()) < 120_000


def test_a_shape_whose_heads_do_not_divide_its_width_is_refused():
    with pytest.raises(ArgumentError, match="multiple of heads=3"):
        Shape(vocabulary=3, prompt=2, answer=2, heads=3)


def test_reading_one_token_at_a_time_gives_the_distributions_of_a_full_forward(policy):
    prompts, _ = draw_prompts(20, 1)
    tokens = torch.cat([prompts.tokens, prompts.answers[:, :-1]], dim=1)
    with torch.no_grad():
        whole = full_log_probabilities(policy, tokens)
        cache, stepwise = None, []
        for place in range(tokens.shape[1]):
            hidden, cache = policy.read(tokens[:, place : place + 1], cache, keep=1)
            stepwise.append(policy.head(hidden).log_softmax(-1))
    torch.testing.assert_close(torch.cat(stepwise, dim=1), whole, rtol=1e-4, atol=1e-4)


def test_the_static_cache_of_generation_gives_the_distributions_of_a_full_forward(policy):
    prompts, _ = draw_prompts(20, 1)
    owner = torch.arange(20).repeat_interleave(3)
    with torch.no_grad():
        _, layers = policy.read(prompts.tokens, keep=1)
        kept = [policy._static(layer, owner) for layer in layers]
        answers = prompts.answers[owner]
        tokens = torch.cat([prompts.tokens[owner], answers[:, :-1]], dim=1)
        whole = full_log_probabilities(policy, tokens)
        for place in range(1, SHAPE.answer):
            hidden = policy._step(answers[:, place - 1], kept, SHAPE.prompt + place - 1)
            stepped = policy.head(hidden).log_softmax(-1)
            torch.testing.assert_close(stepped, whole[:, SHAPE.prompt + place - 1], rtol=1e-4, atol=1e-4)


def test_shared_prompts_give_the_logits_of_whole_sequences(policy):
    prompts, _ = draw_prompts(10, 1)
    owner = torch.tensor([0, 0, 3, 9, 3])
    answers = torch.randint(0, 10, (5, SHAPE.answer), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        shared = policy.answer_logits(prompts.tokens, owner, answers).log_softmax(-1)
        tokens = torch.cat([prompts.tokens[owner], answers[:, :-1]], dim=1)
        whole = full_log_probabilities(policy, tokens)[:, -SHAPE.answer :]
    torch.testing.assert_close(shared, whole, rtol=1e-4, atol=1e-4)


def test_sampling_inverts_the_cumulative_distribution_of_each_token(policy):
    prompts, _ = draw_prompts(1, 1)
    uniforms = rollout_uniforms(np.arange(200), SHAPE.answer)
    answers, _ = policy.generate(prompts.tokens, torch.zeros(200, dtype=torch.int64), uniforms)
    with torch.no_grad():
        tokens = torch.cat([prompts.tokens.expand(200, -1), answers[:, :-1]], dim=1)
        rates = full_log_probabilities(policy, tokens)[:, -SHAPE.answer :].exp().double()
    above = rates.cumsum(-1).gather(-1, answers.unsqueeze(-1))[..., 0].numpy()
    below = above - rates.gather(-1, answers.unsqueeze(-1))[..., 0].numpy()
    assert (below <= uniforms + 1e-5).all()
    assert (uniforms <= above + 1e-5).all()


def test_the_exact_rate_is_the_product_of_the_teacher_forced_probabilities(policy):
    prompts, _ = draw_prompts(30, 1)
    with torch.no_grad():
        tokens = torch.cat([prompts.tokens, prompts.answers[:, :-1]], dim=1)
        log_p = full_log_probabilities(policy, tokens)[:, -SHAPE.answer :]
    each = log_p.gather(-1, prompts.answers.unsqueeze(-1))[..., 0].double().exp().prod(1).numpy()
    np.testing.assert_allclose(policy.success_rates(prompts.tokens, prompts.answers), each, rtol=1e-4)


def test_the_exact_rate_is_the_sampled_frequency_within_monte_carlo_error(policy):
    prompts, _ = draw_prompts(40, 1)
    exact = policy.success_rates(prompts.tokens, prompts.answers)
    assert 0.05 < exact.mean() < 0.95
    draws = 2000
    owner = torch.arange(40).repeat_interleave(draws)
    answers, _ = policy.generate(prompts.tokens, owner, rollout_uniforms(np.arange(40 * draws), SHAPE.answer))
    found = (answers == prompts.answers[owner]).all(1).double().view(40, draws).mean(1).numpy()
    error = np.sqrt(exact * (1.0 - exact) / draws) + 1e-3
    assert (np.abs(found - exact) < 4.5 * error).all()


def test_generation_is_the_same_bit_for_bit_and_leaves_the_global_generator_alone(policy):
    prompts, _ = draw_prompts(8, 1)
    owner, uniforms = torch.arange(8), rollout_uniforms(np.arange(8), SHAPE.answer)
    state = torch.random.get_rng_state()
    first = policy.generate(prompts.tokens, owner, uniforms)
    second = policy.generate(prompts.tokens, owner, uniforms)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_numbers_of_a_rollout_depend_on_its_own_seed_alone_and_look_uniform():
    seeds = np.arange(5000) * 7 + 2**29
    numbers = rollout_uniforms(seeds, 5)
    np.testing.assert_array_equal(numbers[[3]], rollout_uniforms(seeds[[3]], 5))
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    # 25,000 numbers: the standard error of the mean is .0018, that of a correlation .014 between columns.
    assert abs(numbers.mean() - 0.5) < 5 * 0.0018
    correlation = np.corrcoef(numbers.T)[np.triu_indices(5, 1)]
    assert np.abs(correlation).max() < 5 * 0.0142
