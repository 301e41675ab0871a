"""The regression gate without luck of training: VIP's counts against uniform ones at a frozen policy."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from neyman.lab import Experiment, starting_policy  # noqa: E402
from neyman.lab.task import draw_prompts  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gradient_variance.py"
spec = importlib.util.spec_from_file_location("gradient_variance", SCRIPT)
benchmark = sys.modules["gradient_variance"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)


@pytest.fixture(scope="module")
def half_taught(tmp_path_factory):
    """A policy of the hard regime after a short warm start: rates from 0 to 1, most of them low."""
    torch.set_num_threads(1)
    experiment = Experiment(regime="hard", warm_start_steps=400)
    return experiment, starting_policy(experiment.warm_start, cache=tmp_path_factory.mktemp("policies"))


def test_vip_with_exact_rates_lowers_the_gradient_variance_as_the_formula_says(half_taught):
    experiment, policy = half_taught
    prompts, _ = draw_prompts(1024, 1)
    found = benchmark.variance_ratio(policy, prompts, experiment=experiment, batches=4, replicates=60)
    assert found.error < 0.15
    # The formula takes rewards and scores as independent, which at low rates is off by up to a quarter.
    assert abs(found.measured - found.predicted) < 3.0 * found.error + 0.25 * found.predicted
    assert found.measured + 2.0 * found.error < 0.95
    assert found.bias < 4.5


def test_uniform_against_itself_has_a_ratio_of_one_within_its_error(half_taught):
    experiment, policy = half_taught
    prompts, _ = draw_prompts(1024, 1)
    found = benchmark.variance_ratio(
        policy, prompts, experiment=experiment, strategy="uniform", batches=1, replicates=4
    )
    assert found.measured == 1.0
    assert found.predicted == 1.0


def test_the_exact_gradient_is_that_of_the_mean_success_rate(half_taught):
    _, policy = half_taught
    prompts, _ = draw_prompts(1024, 1)
    ids = np.arange(12)
    gradient = benchmark.exact_gradient(policy, prompts, ids)
    at = torch.from_numpy(ids)
    before = policy.success_rates(prompts.tokens[at], prompts.answers[at]).mean()
    step, place = 2e-3 / np.linalg.norm(gradient), 0
    moved = [p.detach().clone() for p in policy.parameters()]
    with torch.no_grad():
        for parameter in policy.parameters():
            part = gradient[place : place + parameter.numel()].reshape(parameter.shape)
            parameter.sub_(torch.from_numpy(step * part).float())
            place += parameter.numel()
    after = policy.success_rates(prompts.tokens[at], prompts.answers[at]).mean()
    with torch.no_grad():
        for parameter, old in zip(policy.parameters(), moved, strict=True):
            parameter.copy_(old)
    # The loss is minus the mean rate over the four tokens, so the rate rises by 4 |gradient|^2 step.
    assert after - before == pytest.approx(4.0 * step * np.square(gradient).sum(), rel=0.1)
