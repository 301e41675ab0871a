import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.errors import ArgumentError
from neyman.step.missing import MissingReward
from neyman.tasks import (
    ExactMatch,
    Problem,
    Task,
    Verifier,
    completion_text,
    content_id,
    problem,
    resolve_duplicates,
    reward_function,
    to_dataset,
)


class Oracle:
    """Returns fixed verdicts and keeps what it was asked."""

    def __init__(self, verdicts):
        self.verdicts, self.asked = verdicts, None

    def verify(self, completions, answers, problems):
        self.asked = (list(completions), list(answers), list(problems))
        return self.verdicts


def test_the_content_id_is_pinned():
    # Saved beliefs are keyed by it: a change breaks every checkpoint.
    assert content_id("1 + 1 =", "2") == "39e533f017587ed7"
    assert content_id([{"role": "user", "content": "é"}], "2") == "49e85e3a9530cd87"


@given(st.text(), st.text(), st.text(), st.text())
def test_ids_differ_when_prompt_or_answer_differ(a, b, c, d):
    assert (content_id(a, b) == content_id(c, d)) == ((a, b) == (c, d))


def test_chat_prompts_have_ids_that_ignore_key_order():
    assert content_id([{"role": "user", "content": "x"}], "y") == content_id(
        [{"content": "x", "role": "user"}], "y"
    )


def test_duplicates_are_refused_by_default_naming_the_place():
    with pytest.raises(ArgumentError, match=r"problems\[2\].*drop.*number"):
        resolve_duplicates([problem("a", "1"), problem("b", "1"), problem("a", "1")])


def test_duplicates_can_be_dropped_or_numbered():
    rows = [problem("a", "1", {"n": 0}), problem("b", "1"), problem("a", "1", {"n": 1}), problem("a", "1")]
    first, second = rows[0].id, rows[1].id
    assert [p.id for p in resolve_duplicates(rows, "drop")] == [first, second]
    numbered = resolve_duplicates(rows, "number")
    assert [p.id for p in numbered] == [first, second, f"{first}-2", f"{first}-3"]
    assert numbered[2].metadata == {"n": 1}


def test_a_numbered_name_that_is_taken_is_refused():
    rows = [Problem(id="x-2", prompt="p", answer="a"), *[Problem(id="x", prompt="q", answer="a")] * 2]
    with pytest.raises(ArgumentError, match="repeats id x"):
        resolve_duplicates(rows, "number")


def test_a_task_refuses_problems_in_both_sets_and_an_empty_training_set():
    shared = problem("a", "1")
    with pytest.raises(ArgumentError, match=shared.id):
        Task(name="t", train=[shared], test=[shared])
    with pytest.raises(ArgumentError, match="no training problems"):
        Task(name="t", train=[], test=[shared])


def test_a_dataset_keeps_prompts_answers_ids_and_metadata():
    rows = [
        problem("a", "1", {"level": 1, "mixed": "x", "deep": {"k": [1]}, "prompts": "p"}),
        problem("b", "2", {"level": 2, "mixed": 3, "only_here": 1}),
    ]
    data = to_dataset(rows)
    assert data.column_names == ["prompt", "answer", "neyman_id", "neyman_metadata", "level"]
    assert list(data["neyman_id"]) == [p.id for p in rows]
    assert list(data["level"]) == [1, 2]
    assert [json.loads(text) for text in data["neyman_metadata"]] == [p.metadata for p in rows]


def test_a_dataset_refuses_nothing_and_mixtures():
    with pytest.raises(ArgumentError, match="at least one"):
        to_dataset([])
    with pytest.raises(ArgumentError, match="mix text prompts and chat prompts"):
        to_dataset([problem("a", "1"), problem([{"role": "user", "content": "a"}], "1")])


def test_completions_of_every_form_become_text():
    said = {"role": "assistant", "content": "7"}
    assert completion_text("7") == "7"
    assert completion_text([said]) == "7"
    assert (
        completion_text([{"role": "assistant", "content": "no"}, {"role": "tool", "content": "5"}, said])
        == "7"
    )
    assert completion_text([{"role": "assistant", "content": [{"type": "text", "text": "7"}]}]) == "7"
    assert completion_text([{"role": "assistant", "content": None}]) == ""
    assert completion_text([{"role": "tool", "content": "7"}]) == ""
    assert completion_text([]) == ""


def test_a_missing_verdict_reaches_the_trainer_as_none_never_as_zero():
    reward = reward_function(Oracle([True, None, False]))
    assert reward(["p"] * 3, ["a", "b", "c"], answer=["a"] * 3) == [1.0, None, 0.0]


@pytest.mark.parametrize(
    "said",
    [0.3, 2, -1, float("nan"), float("inf"), "1", "True", b"1", [True], [1, 1], np.array([1, 0]), object()],
)
def test_what_is_no_verdict_is_missing_and_says_so(said):
    right, wrong, missing = reward_function(Oracle([True, False, said]))(
        ["p"] * 3, ["a"] * 3, answer=["a"] * 3
    )
    assert (right, wrong) == (1.0, 0.0)
    assert isinstance(missing, MissingReward)
    assert "must return True, False or None, got" in missing.why


@pytest.mark.parametrize("said", [1, 0, 1.0, np.bool_(True), np.int64(0)])
def test_one_and_zero_are_verdicts_of_any_verifier(said):
    (reward,) = reward_function(Oracle([said]))(["p"], ["a"], answer=["a"])
    assert type(reward) is float
    assert reward == said


def test_the_verifier_gets_the_problem_back_from_the_columns():
    verifier = Oracle([True])
    source = problem("a", "1", {"deep": {"k": [1, None]}})
    row = to_dataset([source])[0]
    reward = reward_function(verifier, name="right")
    columns = {name: [value] for name, value in row.items() if name != "prompt"}
    reward([row["prompt"]], [[{"role": "assistant", "content": "1"}]], **columns, trainer_state=None)
    assert verifier.asked == (["1"], ["1"], [source])
    assert reward.__name__ == "right"


def test_a_verifier_that_loses_a_verdict_is_found_out():
    with pytest.raises(ArgumentError, match="1 verdicts for 2 completions"):
        reward_function(Oracle([True]))(["p"] * 2, ["a", "b"], answer=["a"] * 2)


def test_verifiers_are_recognised_by_shape():
    assert isinstance(ExactMatch(), Verifier)
    assert not isinstance(object(), Verifier)
