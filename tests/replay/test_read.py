"""Logs of every format become the same trace; what cannot be read is refused with its place and the way out."""

import csv
import json
import tracemalloc
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'neyman[cli]'")
import pyarrow.parquet as pq  # noqa: E402

from neyman._files.tables import LONGEST_LINE  # noqa: E402
from neyman.errors import ArgumentError, NeymanError  # noqa: E402
from neyman.replay import read_logs  # noqa: E402

SUFFIXES = ("parquet", "jsonl", "csv", "tsv")


def write(path, rows):
    """Write rows in the format of the name."""
    kind = path.suffix[1:]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


def per_prompt(trace):
    """Return (successes, trials) of every visit of each prompt."""
    pairs = list(zip(trace.successes.tolist(), trace.trials.tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(trace.first[:-1], trace.first[1:], strict=True)]


ROLLOUTS = [
    {"prompt": "a", "step": 1, "reward": 1.0, "n_tokens": 10},
    {"prompt": "b", "step": 1, "reward": 0.0, "n_tokens": 20},
    {"prompt": "a", "step": 1, "reward": 0.0, "n_tokens": 30},
    {"prompt": "b", "step": 2, "reward": 1.0, "n_tokens": 40},
    {"prompt": "b", "step": 2, "reward": 1.0, "n_tokens": 50},
]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rollouts_one_a_row_become_visits_by_prompt_and_step(tmp_path, suffix):
    trace, found, _ = read_logs([write(tmp_path / f"log.{suffix}", ROLLOUTS)])
    assert per_prompt(trace) == [[(1, 2)], [(0, 1), (2, 2)]]
    assert trace.time.tolist() == [0.0, 0.0, 0.75]  # two steps span one and a half passes
    assert trace.passes == 1.5
    assert trace.rollout_success.tolist() == [1, 0, 0, 1, 1]
    assert trace.rollout_tokens.tolist() == [10, 30, 20, 40, 50]
    assert (found.files[0].format, found.rollouts, found.has_tokens) == ("rollouts", 5, True)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_counts_and_visits_become_the_trace_that_they_say(tmp_path, suffix):
    rows = [
        {"prompt_id": q, "visit": v, "successes": s, "trials": 4}
        for q, v, s in ((7, 0, 1), (7, 1, 2), (3, 1, 4), (3, 0, 3))
    ]
    trace, found, _ = read_logs([write(tmp_path / f"counts.{suffix}", rows)])
    assert per_prompt(trace) == [[(1, 4), (2, 4)], [(3, 4), (4, 4)]]
    assert trace.time.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert (found.files[0].format, found.has_rollouts) == ("counts", False)


def test_counts_without_visits_are_a_static_pool_and_equal_prompts_add_up(tmp_path):
    rows = [
        {"prompt": p, "num_correct": s, "num_samples": n}
        for p, s, n in (("x", 1, 8), ("y", 0, 4), ("x", 3, 8))
    ]
    trace, found, _ = read_logs([write(tmp_path / "c.jsonl", rows)])
    assert per_prompt(trace) == [[(4, 16)], [(0, 4)]]
    assert any("static pool" in sentence for sentence in found.sentences())


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(("k", "n"), [("k", "n"), ("K", "N")])
def test_columns_k_and_n_are_k_of_n(tmp_path, suffix, k, n):
    rows = [{"prompt": p, k: s, n: 8} for p, s in (("x", 3), ("y", 0))]
    trace, found, _ = read_logs([write(tmp_path / f"c.{suffix}", rows)])
    assert per_prompt(trace) == [[(3, 8)], [(0, 8)]]
    assert any(f"successes from '{k}', trials from '{n}'" in sentence for sentence in found.sentences())


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "x", "k": 3},  # of how many?
        {"prompt": "x", "n": 8},
        {"prompt": "x", "n": 8, "c": 3, "k": 1},  # pass@1 of 8 samples, 3 of them right
        {"k": 3, "n": 8},  # of which prompt?
    ],
)
def test_columns_k_and_n_are_not_guessed_where_they_may_mean_something_else(tmp_path, row):
    with pytest.raises(ArgumentError, match=r"Name them, as in --columns"):
        read_logs([write(tmp_path / "c.csv", [row])])


def test_columns_k_and_n_beside_rewards_are_no_counts(tmp_path):
    rows = [{"prompt": "x", "reward": r, "k": 4, "n": 8} for r in (0, 1, 1)]
    trace, found, _ = read_logs([write(tmp_path / "r.jsonl", rows)])
    assert per_prompt(trace) == [[(2, 3)]]
    assert found.has_rollouts
    said = [{"prompt": "x", "grade": r, "k": 4, "n": 8} for r in (0, 1)]
    trace, _, _ = read_logs([write(tmp_path / "s.jsonl", said)], columns=["reward=grade"])
    assert per_prompt(trace) == [[(1, 2)]]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(sum), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    )
)
def test_any_record_reads_the_same_from_every_format(tmp_path_factory, record):
    folder = tmp_path_factory.mktemp("formats")
    expected = [[(wins, wins + losses) for wins, losses in prompt] for prompt in record]
    rollouts = [
        {"id": f"p{q}", "visit": v, "success": win}
        for v in range(4)
        for q, prompt in enumerate(record)
        if v < len(prompt)
        for win in [1] * prompt[v][0] + [0] * prompt[v][1]
    ]
    counts = [
        {"id": f"p{q}", "visit": v, "successes": wins, "trials": wins + losses}
        for q, prompt in enumerate(record)
        for v, (wins, losses) in enumerate(prompt)
    ]
    for suffix in SUFFIXES:
        for rows in (rollouts, counts):
            trace, _, _ = read_logs([write(folder / f"log.{suffix}", rows)])
            assert per_prompt(trace) == expected


def trl_rows(step, rewards, **extra):
    """Return rows of the columns of TRL's table, in its order."""
    return [
        {
            "step": step,
            "prompt": [{"role": "user", "content": f"prompt {i // 2}"}],
            "completion": [{"role": "assistant", "content": f"answer {step} {i}"}],
            "exact_match": reward,
            **{name: values[i] for name, values in extra.items()},
            "advantage": float(i),
        }
        for i, reward in enumerate(rewards)
    ]


def test_trl_completions_are_read_from_a_folder_in_the_order_of_their_steps(tmp_path):
    for step, rewards in ((2, (1.0, 0.0, 0.0, 0.0)), (10, (1.0, 1.0, 0.0, 1.0))):
        write(tmp_path / f"completions_{step:05d}.parquet", trl_rows(step, rewards))
    trace, found, _ = read_logs([tmp_path])
    assert per_prompt(trace) == [[(1, 2), (2, 2)], [(0, 2), (1, 2)]]
    assert {file.format for file in found.files} == {"TRL completions"}
    assert found.files[0].columns == {"step": "step", "prompt": "prompt", "reward": "exact_match"}


def test_a_generation_that_trl_logs_again_at_the_next_step_counts_once(tmp_path):
    rows = trl_rows(1, (1.0, 0.0, 0.0, 0.0))
    write(tmp_path / "completions_00001.parquet", rows)
    write(tmp_path / "completions_00002.parquet", [{**row, "step": 2} for row in rows])
    write(tmp_path / "completions_00003.parquet", trl_rows(3, (1.0, 0.0, 1.0, 0.0)))
    trace, found, _ = read_logs([tmp_path])
    assert per_prompt(trace) == [[(1, 2), (1, 2)], [(0, 2), (1, 2)]]
    assert found.repeated == 4


def test_of_several_reward_functions_one_must_be_named(tmp_path):
    path = write(
        tmp_path / "completions_00001.parquet", trl_rows(1, (1.0, 0.0, 1.0, 1.0), length=[0.3, 0.1, 0.2, 0.9])
    )
    with pytest.raises(ArgumentError, match=r"exact_match.*length.*--columns success=NAME"):
        read_logs([path])
    trace, _, _ = read_logs([path], columns=["success=exact_match"])
    assert per_prompt(trace) == [[(1, 2)], [(2, 2)]]


def verl_rows(step, scores, **extra):
    """Return records of the fields that verl dumps."""
    return [
        {
            "input": f"<|user|>prompt {i // 2}",
            "output": "...",
            "gts": "7",
            "score": score,
            "step": step,
            **{name: values[i] for name, values in extra.items()},
        }
        for i, score in enumerate(scores)
    ]


def test_verl_dumps_are_read_step_after_step_whatever_their_order_by_letters(tmp_path):
    for step in (9, 10, 1):
        write(tmp_path / f"{step}.jsonl", verl_rows(step, (1.0, -1.0, -1.0, -1.0)))
    trace, found, _ = read_logs([tmp_path])
    assert [file.path.rsplit("/", 1)[1] for file in found.files] == ["1.jsonl", "9.jsonl", "10.jsonl"]
    assert per_prompt(trace) == [[(1, 2)] * 3, [(0, 2)] * 3]
    assert found.files[0].format == "verl rollout dump"


def test_verls_verified_outcome_is_taken_before_its_shaped_score(tmp_path):
    path = write(tmp_path / "1.jsonl", verl_rows(1, (0.9, 0.1, -0.5, 0.7), acc=[True, False, False, True]))
    trace, found, _ = read_logs([path])
    assert per_prompt(trace) == [[(1, 2)], [(1, 2)]]
    assert found.files[0].columns["success"] == "acc"


def test_rewards_that_are_not_binary_name_their_place_and_both_ways_out(tmp_path):
    path = write(tmp_path / "log.jsonl", [{"prompt": "a", "reward": 1.0}, {"prompt": "a", "reward": 0.35}])
    with pytest.raises(
        ArgumentError, match=r"line 2, field 'reward'.*0\.35.*--success-threshold.*success=NAME"
    ):
        read_logs([path])
    trace, found, _ = read_logs([path], success_threshold=0.3)
    assert per_prompt(trace) == [[(2, 2)]]
    assert found.rewards == "reward >= 0.3"


def test_missing_rewards_are_counted_and_never_failures(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"id": 1, "reward": null}\n{"id": 1, "reward": NaN}\n\n{"id": 1}\n{"id": 1, "reward": true}\n'
    )
    trace, found, _ = read_logs([path])
    assert (per_prompt(trace), found.missing) == ([[(1, 1)]], 3)


def test_ids_tell_prompts_apart_before_their_texts_and_numbers_before_their_types(tmp_path):
    first = write(tmp_path / "a.jsonl", [{"prompt_id": 1, "prompt": "same", "success": 1}])
    second = write(tmp_path / "b.csv", [{"prompt_id": "1", "prompt": "other", "success": 0}])
    third = write(tmp_path / "c.jsonl", [{"prompt_id": 2.0, "prompt": "same", "success": 0}])
    trace, _, texts = read_logs([first, second, third], keep_texts=True)
    assert per_prompt(trace) == [[(1, 2)], [(0, 1)]]
    assert texts == ["same", "same"]


def test_unusual_names_are_told_by_role(tmp_path):
    path = write(tmp_path / "log.csv", [{"q": "a", "r": 1, "when": 3}, {"q": "a", "r": 0, "when": 4}])
    with pytest.raises(ArgumentError, match=r"q, r, when.*--columns prompt=NAME reward=NAME"):
        read_logs([path])
    trace, _, _ = read_logs([path], columns=["prompt=q", "reward=r", "step=when"])
    assert per_prompt(trace) == [[(1, 1), (0, 1)]]
    for words, message in (
        (["prompt=absent"], "no column 'absent'"),
        (["colour=q"], "ROLE=COLUMN"),
        (["prompt"], "ROLE=COLUMN"),
        (["prompt=q", "prompt=r"], "twice"),
    ):
        with pytest.raises(ArgumentError, match=message):
            read_logs([path], columns=words)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"id": 1, "success": 1}\n{"id": 1, "succ\n', "line 2 is not a JSON object"),
        ("a.jsonl", '{"id": 1, "success": 1}\n[1, 2]\n', "line 2 must be a JSON object"),
        ("a.json", '[{"id": 1}]\n', "line 1 must be a JSON object.*jq"),
        ("a.jsonl", "[" * 100_000 + "\n", "line 1 is not a JSON object"),
        (
            "a.jsonl",
            '{"id": 1, "reward": 1}\n{"id": 1, "reward": 1, "reward": 0}\n',
            "line 2: the field 'reward' stands twice",
        ),
        (
            "a.jsonl",
            '{"id": 1, "reward": 1, "x": [{"b": 1, "b": 1}]}\n',
            "line 1: the field 'b' stands twice",
        ),
        (
            "a.jsonl",
            '{"id": 1, "success": "perhaps"}\n',
            "line 1, field 'success'.*must be a number.*'perhaps'",
        ),
        ("a.jsonl", '{"id": 1, "reward": 1e999}\n', "line 1, field 'reward'.*finite"),
        ("a.jsonl", '{"id": null, "reward": 1}\n', "line 1, field 'id'.*must name or hold the prompt"),
        ("a.jsonl", '{"id": 1, "reward": 1, "step": null}\n', "line 1, field 'step': a step is missing"),
        ("a.jsonl", '{"id": 1, "reward": 1, "tokens": -3}\n', "line 1, field 'tokens'.*>= 0"),
        ("a.jsonl", '{"id": 1, "reward": 1, "step": 1e300}\n', "line 1, field 'step'.*within"),
        ("a.jsonl", '{"id": 1, "successes": 1, "trials": 1e12}\n', "line 1, field 'trials'.*whole number in"),
        ("a.jsonl", "", "holds no record"),
        ("a.jsonl", '{"id": 1, "reward": null}\n', "no rollout with a result"),
        ("a.csv", "", "no header"),
        ("a.csv", "id,id\n1,2\n", "names the column 'id' twice"),
        ("a.csv", "id,success\n1,1\n1,1,7\n", "line 3 has 3 values for 2 columns"),
        ("a.csv", "id,successes,trials\n1,3,2\n", "line 2, field 'successes'.*<= trials, got 3 of 2"),
        ("a.csv", "id,successes,trials\n1,1.5,2\n", "line 2, field 'successes'.*whole number"),
        ("a.parquet", "not parquet", "is no parquet file"),
        ("a.log", "what is this", "none of parquet, JSON lines and CSV"),
    ],
)
def test_what_cannot_be_read_is_refused_with_file_line_and_field(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ArgumentError, match=f"(?s){name}.*{message}|{message}"):
        read_logs([path])


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id": 1, "success": 1}\n{"id": "\xff\xfe"}\n')
    with pytest.raises(ArgumentError, match=r"line 2 is not UTF-8"):
        read_logs([path])


def test_paths_that_are_not_there_and_folders_without_logs_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="nowhere is not there"):
        read_logs([tmp_path / "nowhere"])
    with pytest.raises(ArgumentError, match="holds no log"):
        read_logs([tmp_path])
    with pytest.raises(ArgumentError, match="no file was given"):
        read_logs([])


def test_files_that_order_visits_by_different_things_are_refused(tmp_path):
    one = write(tmp_path / "a.jsonl", [{"id": 1, "step": 1, "success": 1}])
    other = write(tmp_path / "b.jsonl", [{"id": 1, "success": 1}])
    with pytest.raises(ArgumentError, match=r"a.jsonl has visits by the column 'step'.*b.jsonl has no order"):
        read_logs([one, other])


def test_a_line_of_a_gigabyte_is_refused_and_not_loaded(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"id": 1, "success": 1}\n{"id": "')
        file.truncate(2**30)
    tracemalloc.start()
    with pytest.raises(ArgumentError, match=r"line 2: longer than 16 MiB"):
        read_logs([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * LONGEST_LINE


def test_long_completions_do_not_stay_in_memory(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("w") as file:
        for i in range(600):
            file.write(json.dumps({"id": i % 30, "reward": i % 2, "completion": "x" * 100_000}) + "\n")
    tracemalloc.start()
    trace, _, _ = read_logs([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert trace.trials.sum() == 600
    assert peak < 4_000_000  # of 60 MB


def test_a_byte_order_mark_and_a_quoted_line_break_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffprompt,success\n"two\nlines",1\n"two\nlines",0\n'.encode())
    trace, _, texts = read_logs([path], keep_texts=True)
    assert (per_prompt(trace), texts) == ([[(1, 2)]], ["two\nlines"])


def test_a_field_of_csv_may_be_longer_than_pythons_default_and_the_default_stays(tmp_path):
    before = csv.field_size_limit()
    path = write(tmp_path / "a.csv", [{"prompt": "x" * 200_000, "success": 1}])
    trace, _, _ = read_logs([path])
    assert trace.prompts == 1
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_suffix_means_the_same_in_upper_case(tmp_path, suffix):
    lower = write(tmp_path / f"log.{suffix}", ROLLOUTS)
    trace, _, _ = read_logs([lower])
    upper, _, _ = read_logs([lower.rename(tmp_path / f"LOG.{suffix.upper()}")])
    assert per_prompt(upper) == per_prompt(trace)


def test_a_parquet_file_with_a_column_twice_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([["a"], ["b"], [1]], names=["prompt", "prompt", "reward"]), path)
    with pytest.raises(ArgumentError, match=r"a\.parquet names the column 'prompt' twice; rename one"):
        read_logs([path])


@given(st.binary(max_size=300), st.sampled_from([".jsonl", ".csv", ".parquet", ".tsv", ""]))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content, suffix):
    path = tmp_path_factory.mktemp("bytes") / f"a{suffix}"
    path.write_bytes(content)
    try:
        trace, _, _ = read_logs([path])
    except NeymanError:
        return
    assert trace.trials.min() >= 1


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["id", "prompt", "reward", "success", "step", "tokens", "successes", "trials", "visit"]
            ),
            VALUES,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_records_are_read_or_refused_and_counted_once(tmp_path_factory, records):
    path = write(tmp_path_factory.mktemp("records") / "a.jsonl", records)
    try:
        trace, found, _ = read_logs([path])
    except NeymanError as error:
        refused = str(error)
    else:
        refused = None
    if refused is not None:
        assert str(path) in refused
        return
    if found.has_rollouts:
        assert trace.trials.sum() + found.missing == len(records)
    assert np.isfinite(trace.time).all()


def test_tokens_of_counts_may_be_told_apart_by_outcome(tmp_path):
    rows = [
        {"id": 1, "successes": 1, "trials": 4, "success_tokens": 10, "failure_tokens": 90},
        {"id": 2, "successes": 0, "trials": 4, "success_tokens": None, "failure_tokens": 50},
    ]
    trace, _, _ = read_logs([write(tmp_path / "a.jsonl", rows)])
    by_prompt = defaultdict(list, enumerate(trace.tokens.tolist()))
    assert by_prompt[0] == [90.0, 10.0]
    assert by_prompt[1][0] == 50.0


def test_a_parquet_file_with_text_that_is_no_utf8_is_refused_by_name(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"prompt": ["qqqq", "rrrr"], "reward": [1.0, 0.0]}), path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"qqqq", b"q\x80qq"))
    with pytest.raises(ArgumentError, match=r"a\.parquet.*damaged after row 0"):
        read_logs([path])
