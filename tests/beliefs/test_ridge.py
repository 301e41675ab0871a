"""Ridge regression of success on features: solved by hand, and without features."""

import numpy as np
import pytest

from neyman.beliefs import Ridge
from neyman.errors import StateError


def test_two_prompts_solved_by_hand():
    belief = Ridge(penalty=1.0)
    belief.register(["a", "b"], [[1.0], [-1.0]])
    belief.update(["a", "b"], [8, 0], [8, 8])
    # Gram (16, 0; 0, 16), moment (0, 8): the weight is 8 / 17.
    np.testing.assert_allclose(belief.predict(["a", "b"])[0], [0.5 + 8 / 17, 0.5 - 8 / 17])
    np.testing.assert_allclose(belief.predict(["a", "b"])[1], 0.0, atol=1e-12)


def test_it_is_the_least_squares_solution_over_all_rollouts():
    rng, ids = np.random.default_rng(0), [f"q{k}" for k in range(30)]
    x = rng.normal(size=(30, 4)).astype(np.float32).astype(np.float64)
    n = rng.integers(1, 9, 30)
    s = rng.binomial(n, 0.5)
    belief = Ridge(penalty=0.7, memory=1.0)
    belief.register(ids, x)
    for part in (slice(0, 10), slice(10, 30)):
        belief.update(ids[part], s[part], n[part])
        belief.advance()
    z = np.repeat(np.c_[np.ones(30), x], n, axis=0)
    r = np.concatenate([[1.0] * a + [0.0] * (b - a) for a, b in zip(s, n, strict=True)])
    w = np.linalg.solve(z.T @ z + np.diag([1.0, *[0.7] * 4]), z.T @ (r - 0.5))
    expected = np.clip(0.5 + np.c_[np.ones(30), x] @ w, 0.01, 0.99)
    np.testing.assert_allclose(belief.predict(ids)[0], expected, rtol=1e-9)


def test_without_features_it_is_the_pools_mean():
    belief = Ridge()
    belief.update(["a", "b"], [6, 0], [8, 8])
    expected = 0.5 + (6 - 8) / 17  # one pseudo-rollout at 1/2
    np.testing.assert_allclose(belief.predict(["a", "b", "never seen"])[0], [expected] * 3)


def test_old_rollouts_lose_weight_step_by_step():
    belief = Ridge(memory=0.5)
    belief.update(["a"], [8], [8])
    belief.advance(2)
    belief.update(["a"], [0], [8])
    np.testing.assert_allclose(belief.predict(["a"])[0], [0.5 + (0.25 * 4 - 4) / (0.25 * 8 + 8 + 1)])


def test_features_that_come_later_add_to_the_level():
    belief = Ridge()
    belief.update(["a"], [0], [8])
    belief.register(["a", "b"], [[1.0], [-1.0]])
    level = belief.predict(["a"])[0][0]
    assert level < 0.1
    belief.update(["b"], [8], [8])
    assert belief.predict(["a"])[0][0] < 0.5 < belief.predict(["b"])[0][0]


def test_a_state_of_other_features_is_refused():
    one, other = Ridge(), Ridge()
    one.register(["a"], [[1.0, 2.0]])
    one.update(["a"], [1], [2])
    other.register(["b"], [[1.0]])
    with pytest.raises(StateError, match="2 features, the registered prompts have 1"):
        other.load_state_dict(
            {
                **one.state_dict(),
                "ids": [],
                "seen": Ridge().state_dict()["seen"],
                "features": Ridge().state_dict()["features"],
            }
        )
    other = Ridge()
    other.register(["a"], [[1.0, 3.0]])
    with pytest.raises(StateError, match="other features"):
        other.load_state_dict(one.state_dict())
