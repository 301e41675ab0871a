import pytest

from neyman.errors import ArgumentError
from neyman.tasks import ReasoningGymVerifier, reasoning_gym_task
from neyman.tasks.reasoning import LEVELS, judge_entry


@pytest.mark.parametrize("name", sorted(LEVELS))
def test_graded_tasks_share_their_levels_equally_and_never_repeat(name):
    task = reasoning_gym_task(name, train_size=22, test_size=10, seed=3)
    assert len(task.train) == 22
    assert len(task.test) == 10
    levels = [p.metadata["level"] for p in task.test]
    assert levels == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert {p.metadata["difficulty"] for p in task.train} == {0.0, 0.25, 0.5, 0.75, 1.0}
    prompts = [p.prompt for p in task.train + task.test]
    assert len(set(prompts)) == 32
    assert task == reasoning_gym_task(name, train_size=22, test_size=10, seed=3)


def test_harder_levels_of_countdown_have_more_numbers():
    task = reasoning_gym_task("countdown", train_size=10, test_size=0)
    counts = [len(p.metadata["entry"]["numbers"]) for p in task.train]
    assert counts == [2, 2, 2, 2, 3, 3, 4, 4, 5, 5]


def test_success_is_the_generators_own_full_score():
    task = reasoning_gym_task("countdown", train_size=5, test_size=0, seed=1)
    easy = task.train[0]
    said = [
        easy.answer,
        f"I think <answer>1</answer> no: <answer> {easy.answer} </answer>",
        # Another order of the same sum or product is a solution too; the scorer, not the text, decides.
        f"({easy.answer})",
        "1+",
        "",
    ]
    with ReasoningGymVerifier(timeout_seconds=60.0) as verifier:
        verdicts = verifier.verify(said, [easy.answer] * 5, [easy] * 5)
        assert verdicts[:4] == [True, True, True, False]
        assert verdicts[4] is not True
        assert (
            verifier.verify([p.answer for p in task.train], [p.answer for p in task.train], task.train)
            == [True] * 5
        )


def test_what_no_scorer_can_work_out_is_not_right():
    item = reasoning_gym_task("countdown", train_size=1, test_size=0, seed=1).train[0]
    with ReasoningGymVerifier(timeout_seconds=1.0) as verifier:
        assert verifier.verify(["9**9**9**9"], [item.answer], [item]) != [True]


def test_partial_credit_is_no_success():
    # chain_sum gives 0.01 or more for a wrong number in the right form.
    item = reasoning_gym_task("chain_sum", train_size=5, test_size=0).train[0]
    assert judge_entry(str(int(item.answer)), item.answer, item.metadata)
    assert not judge_entry(str(int(item.answer) + 1), item.answer, item.metadata)
    assert not judge_entry(f"{item.answer} or so", item.answer, item.metadata)


def test_an_entry_that_json_would_change_is_made_again_and_checked():
    item = reasoning_gym_task("chain_sum", train_size=5, test_size=0).train[0]
    metadata = {key: value for key, value in item.metadata.items() if key not in {"entry", "question"}}
    assert judge_entry(item.answer, item.answer, metadata)
    with pytest.raises(ValueError, match="gives another entry at index"):
        judge_entry(item.answer, item.answer, metadata | {"seed": 99})


def test_text_that_a_scorer_cannot_read_is_wrong_and_not_unjudged():
    item = reasoning_gym_task("prime_factorization", train_size=1, test_size=0).train[0]
    assert judge_entry(item.answer, item.answer, item.metadata)
    # The scorer itself raises ValueError here.
    assert not judge_entry("zzz", item.answer, item.metadata)


def test_chat_and_instruction_shape_the_prompt():
    plain = reasoning_gym_task("chain_sum", train_size=5, test_size=0).train[0]
    chat = reasoning_gym_task(
        "chain_sum", train_size=5, test_size=0, instruction="Be brief.", chat=True
    ).train[0]
    assert chat.prompt == [{"role": "user", "content": f"{plain.prompt}\nBe brief."}]


def test_unknown_generators_options_and_small_spaces_are_refused():
    with pytest.raises(ArgumentError, match=r"no generator 'countdwn'; it has e\.g\. countdown"):
        reasoning_gym_task("countdwn")
    with pytest.raises(ArgumentError, match="refuses the configuration"):
        reasoning_gym_task("chain_sum", configs=[{"colour": 1}])
    with pytest.raises(ArgumentError, match="refuses the configuration"):
        reasoning_gym_task("chain_sum", configs=[{"min_terms": 5, "max_terms": 2}])
    with pytest.raises(ArgumentError, match="new questions of the 300 asked for"):
        reasoning_gym_task(
            "products", train_size=300, configs=[{"min_digits": 1, "max_digits": 1}], test_size=0
        )
    with pytest.raises(ArgumentError, match="at least one mapping"):
        reasoning_gym_task("chain_sum", configs=[])
