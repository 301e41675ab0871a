import numpy as np
import pytest

from neyman.errors import ArgumentError
from neyman.tasks import rules, rules_task


def slow_rule(family, digits):
    """The rules in words: four ways to reorder, four ways to change a digit."""
    index = "ABCDEFGHIJKLMNOP".index(family)
    a, b, c, d = digits
    reordered = [(a, b, c, d), (d, c, b, a), (b, c, d, a), (b, a, d, c)][index % 4]
    change = [lambda x: x, lambda x: (x + 1) % 10, lambda x: 9 - x, lambda x: (x + 5) % 10][index // 4]
    return tuple(change(x) for x in reordered)


def test_answers_follow_the_rules_in_words():
    rng = np.random.default_rng(0)
    families, digits = rng.integers(0, 16, 500), rng.integers(0, 10, (500, 4))
    got = rules.apply_rules(families, digits)
    for family, row, answer in zip(families, digits, got, strict=True):
        assert slow_rule(rules.FAMILIES[family], row.tolist()) == tuple(answer.tolist())


@pytest.mark.parametrize(
    ("regime", "mean", "below", "above"),
    [("hard", 0.2, 0.5, 0.02), ("ushape", 0.5, 0.25, 0.25), ("easy", 0.75, 0.02, 0.4)],
)
def test_regimes_have_the_promised_mean_and_spread(regime, mean, below, above):
    rates = rules.demonstrated_rates(regime, seed=3)
    assert rates.shape == (16, 10)
    assert abs(rates.mean() - mean) < 0.02
    assert (rates < 0.1).mean() >= below
    assert (rates > 0.9).mean() >= above
    assert np.array_equal(np.sort(rates, axis=None), np.sort(rules.demonstrated_rates(regime, 4), axis=None))
    assert not np.array_equal(rates, rules.demonstrated_rates(regime, 4))


def test_the_family_says_something_about_the_rate_but_not_all():
    rates = rules.demonstrated_rates("ushape", 0)
    explained = rates.mean(axis=1).var() / rates.var()
    # Five independent tables would explain a tenth: 1 / digits.
    assert 0.25 < explained < 0.75


def test_demonstrations_are_right_as_often_as_their_cell_says():
    rates = rules.demonstrated_rates("ushape", 1)
    pairs = rules.demonstrate(np.random.default_rng(0), 60_000, "ushape", 1)
    right = np.array([tuple(map(int, a)) == slow_rule(p[0], list(map(int, p[1:5]))) for p, a in pairs])
    rate = np.array([rates[rules.FAMILIES.index(p[0]), int(p[1])] for p, _ in pairs])
    # A slip that writes the same digit by chance is right too: never less often than the cell says.
    assert right.mean() >= rate.mean() - 4 * np.sqrt(0.25 / 60_000)
    assert right.mean() <= rate.mean() + 0.06
    wrong = [(p, a) for (p, a), ok in zip(pairs, right, strict=True) if not ok]
    slips = [
        sum(x != y for x, y in zip(map(int, a), slow_rule(p[0], list(map(int, p[1:5]))), strict=True))
        for p, a in wrong
    ]
    assert set(slips) == {1}


def test_tasks_are_disjoint_distinct_and_repeatable():
    task = rules_task("hard", train_size=300, test_size=200, seed=5)
    prompts = [p.prompt for p in task.train + task.test]
    assert len(set(prompts)) == 500
    assert task == rules_task("hard", train_size=300, test_size=200, seed=5)
    assert task != rules_task("hard", train_size=300, test_size=200, seed=6)
    for item in task.train:
        digits = list(map(int, item.prompt[1:5]))
        assert item.answer == "".join(map(str, slow_rule(item.prompt[0], digits)))
        assert item.metadata["family"] == item.prompt[0]
        assert item.metadata["first_digit"] == digits[0]
        assert set(item.prompt + item.answer) <= set(rules.ALPHABET)


def test_features_are_what_the_prompt_shows():
    task = rules_task("hard", train_size=50, test_size=0)
    table = rules.features(task.train)
    assert table.shape == (50, 26)
    for row, item in zip(table, task.train, strict=True):
        assert np.flatnonzero(row).tolist() == [
            rules.FAMILIES.index(item.metadata["family"]),
            16 + item.metadata["first_digit"],
        ]


def test_unknown_regimes_and_impossible_sizes_are_refused():
    with pytest.raises(ArgumentError, match="regime must be one of 'hard', 'ushape', 'easy'"):
        rules_task("impossible")
    with pytest.raises(ArgumentError, match="test_size must be in"):
        rules_task(train_size=100_000, test_size=100_000)
