import csv
import json

import pytest

from neyman.errors import ArgumentError
from neyman.tasks import file_task, load_problems, problem, split_problems


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_every_format_gives_the_same_problems(tmp_path):
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"q": f"é{i}, x", "a": str(i), "tag": f"t{i}"} for i in range(2500)]
    want = [problem(r["q"], r["a"], {"tag": r["tag"]}) for r in rows]
    options = {"prompt": "q", "answer": "a", "metadata": ["tag"]}
    jsonl = write(tmp_path / "d.jsonl", "".join(json.dumps(r) + "\n" for r in rows) + "\n")
    table = write(
        tmp_path / "d.csv", "q,a,tag\n" + "".join(f'"{r["q"]}",{r["a"]},{r["tag"]}\n' for r in rows)
    )
    tabs = write(
        tmp_path / "d.tsv", "q\ta\ttag\n" + "".join(f"{r['q']}\t{r['a']}\t{r['tag']}\n" for r in rows)
    )
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(tmp_path / "many")
    for path in (jsonl, table, tabs, tmp_path / "d.parquet", tmp_path / "one", tmp_path / "many"):
        assert load_problems(path, **options) == want, path


def test_chat_prompts_and_numbers_are_read(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"prompt": [{"role": "user", "content": "2+2"}], "answer": 4},
        {"prompt": [{"role": "user", "content": "1/2", "name": "x"}], "answer": 0.5},
    ]
    want = [problem(r["prompt"], str(r["answer"])) for r in rows]
    assert load_problems(write(tmp_path / "d.jsonl", "\n".join(map(json.dumps, rows)))) == want
    pq.write_table(
        pa.Table.from_pylist([r | {"answer": str(r["answer"])} for r in rows]), tmp_path / "d.parquet"
    )
    # Arrow fills the first message's missing name with None, which must not change its id.
    assert [p.id for p in load_problems(tmp_path / "d.parquet")] == [p.id for p in want]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "d.jsonl",
            '{"prompt": "a", "answer": "1"}\n{"prompt": "b"}\n',
            r"d\.jsonl, line 2: field 'answer' is missing; .*'prompt'",
        ),
        ("d.jsonl", '\n{"prompt": "a", "answer": null}', r"d\.jsonl, line 2: field 'answer' is empty"),
        ("d.jsonl", '{"prompt": "a", "answer": ""}', r"d\.jsonl, line 1: field 'answer' is empty"),
        (
            "d.jsonl",
            '{"prompt": "a", "answer": true}',
            r"field 'answer' must be text or a finite number, got True",
        ),
        (
            "d.jsonl",
            '{"prompt": 3, "answer": "1"}',
            r"d\.jsonl, line 1: field 'prompt' must be text or a list",
        ),
        (
            "d.jsonl",
            '{"prompt": [{"content": "a"}], "answer": "1"}',
            r"field 'prompt' must be text or a list",
        ),
        ("d.jsonl", '{"prompt": "a"', r"d\.jsonl, line 1 is not a JSON object.*must be one object"),
        ("d.jsonl", "[" * 100_000, r"d\.jsonl, line 1 is not a JSON object"),
        (
            "d.jsonl",
            '\n{"prompt": "a", "answer": "1", "answer": "2"}',
            r"d\.jsonl, line 2: the field 'answer' stands twice in one object; keep one",
        ),
        (
            "d.json",
            "[1]",
            r"d\.json, line 1 must be a JSON object, got '\[1\]'; every line must be one object",
        ),
        ("d.jsonl", "", r"d\.jsonl: no rows"),
        ("d.csv", "", r"d\.csv has no header: its first line must name the columns"),
        ("d.csv", "prompt,answer\n", "no rows"),
        ("d.csv", "prompt,prompt\na,b\n", r"d\.csv, line 1 names the column 'prompt' twice; rename one"),
        (
            "d.csv",
            "prompt,answer\na,1\nb,2,3\n",
            r"d\.csv, line 3 has 3 values for 2 columns \(prompt, answer\); quote",
        ),
        ("d.csv", 'prompt,answer\n"a,1\n', r"d\.csv, line 2 is no CSV"),
        (
            "d.csv",
            "question,answer\na,1\n",
            r"d\.csv, line 2: field 'prompt' is missing; .*'question', 'answer'",
        ),
        ("d.parquet", "not parquet", r"d\.parquet is no parquet file, or is cut short"),
        ("d.txt", "a", r"d\.txt is none of parquet, JSON lines and CSV by its name or its first bytes"),
        ("d.jsonl", '{"prompt": "a", "answer": "1"}\n' * 2, r"problems\[1\] repeats id"),
    ],
)
def test_faults_are_named_with_file_line_and_field(tmp_path, name, text, message):
    with pytest.raises(ArgumentError, match=message):
        load_problems(write(tmp_path / name, text))


def test_a_huge_line_is_refused_before_it_is_held(tmp_path):
    path = tmp_path / "d.jsonl"
    with path.open("wb") as stream:
        stream.write(b'{"prompt": "a", "answer": "1"}\n')
        # A sparse line of a terabyte: reading it whole could only end in MemoryError.
        stream.truncate(1 << 40)
    with pytest.raises(
        ArgumentError, match=r"d\.jsonl, line 2: longer than 1 MiB; .*or raise max_line_bytes"
    ):
        load_problems(path)
    with pytest.raises(ArgumentError, match="longer than 10 bytes"):
        load_problems(path, max_line_bytes=10)


def test_a_quote_that_never_closes_is_refused_before_it_is_held(tmp_path):
    path = write(tmp_path / "d.csv", 'prompt,answer\n"' + ("x" * 1000 + "\n") * 1100)
    with pytest.raises(
        ArgumentError, match="a record is longer than 1 MiB; is a quote left open\\?; or raise max_line_bytes"
    ):
        load_problems(path)


def test_other_encodings_are_named_and_a_byte_order_mark_is_not_data(tmp_path):
    (tmp_path / "bad.csv").write_bytes("prompt,answer\né,1\n".encode("latin-1"))
    with pytest.raises(ArgumentError, match=r"bad\.csv, line 2 is not UTF-8.*; convert the file"):
        load_problems(tmp_path / "bad.csv")
    (tmp_path / "bom.csv").write_bytes("prompt,answer\na,1\n".encode("utf-8-sig"))
    assert load_problems(tmp_path / "bom.csv") == [problem("a", "1")]


def test_quoted_line_breaks_are_part_of_the_value(tmp_path):
    path = write(tmp_path / "d.csv", 'prompt,answer\n"a\nb",1\nc\n')
    with pytest.raises(ArgumentError, match=r"d\.csv, line 4 has 1 values"):
        load_problems(path)
    assert load_problems(write(tmp_path / "e.csv", 'prompt,answer\n"a\nb",1\n')) == [problem("a\nb", "1")]


def test_parquet_faults_name_row_and_fields(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"prompt": ["a", "b"], "answer": ["1", None]}), tmp_path / "d.parquet")
    with pytest.raises(ArgumentError, match=r"d\.parquet, row 2: field 'answer' is empty"):
        load_problems(tmp_path / "d.parquet")
    with pytest.raises(ArgumentError, match=r"row 1: field 'solution' is missing; .*'answer'"):
        load_problems(tmp_path / "d.parquet", answer="solution")


def test_folders_that_are_no_dataset_and_unknown_splits_are_refused(tmp_path):
    import datasets

    with pytest.raises(ArgumentError, match="does not exist"):
        load_problems(tmp_path / "nothing.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match="save_to_disk did not write"):
        load_problems(tmp_path / "empty")
    datasets.DatasetDict({"a": datasets.Dataset.from_list([{"prompt": "p", "answer": "1"}])}).save_to_disk(
        tmp_path / "many"
    )
    with pytest.raises(ArgumentError, match="split must be one of 'a', got 'train'"):
        load_problems(tmp_path / "many")


def test_a_split_depends_on_the_prompt_alone():
    rows = [problem(f"p{i}", "x") for i in range(2000)]
    train, test = split_problems(rows, 0.25, seed=1)
    assert len(train) + len(test) == 2000
    # Binomial(2000, 1/4): four standard deviations.
    assert abs(len(test) - 500) < 4 * (2000 * 0.25 * 0.75) ** 0.5
    again = split_problems([*rows[::-1], problem("new", "x")], 0.25, seed=1)[1]
    assert {p.id for p in test} <= {p.id for p in again}
    assert len(again) <= len(test) + 1
    other_answer = split_problems([problem(p.prompt, "y") for p in rows], 0.25, seed=1)[1]
    assert [p.prompt for p in other_answer] == [p.prompt for p in test]
    assert split_problems(rows, 0.0)[1] == split_problems(rows, 1.0)[0] == []


def test_a_file_task_holds_out_a_share_or_takes_a_second_file(tmp_path):
    def rows(start, stop):
        return "".join(json.dumps({"prompt": f"p{i}", "answer": "x"}) + "\n" for i in range(start, stop))

    one = write(tmp_path / "mine.jsonl", rows(0, 200))
    task = file_task(one, test_share=0.2)
    assert task.name == "mine"
    assert len(task.train) + len(task.test) == 200
    assert task.test
    other = write(tmp_path / "other.jsonl", rows(200, 210))
    assert len(file_task(one, other).test) == 10
    with pytest.raises(ArgumentError, match="both in train and test"):
        file_task(one, one)


def test_a_parquet_file_that_is_damaged_behind_its_footer_is_refused_by_name(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"prompt": ["a", "b"], "answer": ["1", "2"]}), path)
    whole = path.read_bytes()
    path.write_bytes(b'"' + whole)  # every page is a byte further than the footer says
    with pytest.raises(ArgumentError, match=r"d\.parquet is damaged after row 0"):
        load_problems(path)


def test_a_parquet_file_with_a_column_twice_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_arrays([["a"], ["b"], ["1"]], names=["prompt", "prompt", "answer"])
    pq.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(ArgumentError, match=r"d\.parquet names the column 'prompt' twice; rename one"):
        load_problems(tmp_path / "d.parquet")


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
def test_an_answer_that_is_no_finite_number_is_refused(tmp_path, number):
    path = write(tmp_path / "d.jsonl", f'{{"prompt": "a", "answer": {number}}}\n')
    with pytest.raises(
        ArgumentError, match=r"d\.jsonl, line 1: field 'answer' must be text or a finite number"
    ):
        load_problems(path)


def test_a_field_of_csv_may_be_as_long_as_a_line_and_pythons_own_limit_stays(tmp_path):
    before = csv.field_size_limit()
    path = write(tmp_path / "d.csv", f"prompt,answer\n{'x' * 200_000},1\n")
    assert len(load_problems(path)[0].prompt) == 200_000
    with pytest.raises(ArgumentError, match="longer than 1,000 bytes"):
        load_problems(path, max_line_bytes=1000)
    with pytest.raises(ArgumentError, match="max_line_bytes"):
        load_problems(path, max_line_bytes=2**31)
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "parquet"])
def test_a_suffix_means_the_same_in_upper_case(tmp_path, suffix):
    import pyarrow as pa
    import pyarrow.parquet as pq

    tab = "\t" if suffix == "tsv" else ","
    path = tmp_path / f"d.{suffix.upper()}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([{"prompt": "a", "answer": "1"}]), path)
    elif suffix == "jsonl":
        write(path, '{"prompt": "a", "answer": "1"}\n')
    else:
        write(path, f"prompt{tab}answer\na{tab}1\n")
    assert load_problems(path) == [problem("a", "1")]
