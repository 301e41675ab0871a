"""Tables of every format give the same rows; what is damaged is refused with its place, in every format alike."""

import csv
import json

import pytest

from neyman._files.tables import files_of, open_table
from neyman.errors import ArgumentError

ROWS = [{"q": f"é{i}, x", "n": i} for i in range(3)]


def write(path, rows=ROWS):
    """Write rows in the format of the name."""
    if path.suffix in {".parquet", ".pq"}:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix in {".csv", ".tsv"}:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.pq", "a.jsonl", "a.ndjson", "a.json", "a.csv", "a.tsv"])
def test_every_format_gives_the_same_rows_with_their_places(tmp_path, name):
    table = open_table(write(tmp_path / name))
    rows = list(table.rows(["q", "n"]))
    assert table.columns == ("q", "n")
    assert [(row.values["q"], int(row.values["n"])) for row in rows] == [(r["q"], r["n"]) for r in ROWS]
    unit = {"a.parquet": "row 3", "a.pq": "row 3", "a.csv": "line 4", "a.tsv": "line 4"}.get(name, "line 3")
    assert rows[2].where("q") == f"{tmp_path / name}, {unit}, field 'q'"


def test_a_folder_of_datasets_is_a_table(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    table = open_table(tmp_path / "saved")
    assert (table.columns, [row.values for row in table.rows(["q"])]) == (("q", "n"), ROWS)


def test_only_the_wanted_columns_of_parquet_are_read_and_their_types_are_known(tmp_path):
    table = open_table(write(tmp_path / "a.parquet"))
    assert [row.values for row in table.rows(["n", "absent"])] == [{"n": i} for i in range(3)]
    assert table.numeric == {"n"}


@pytest.mark.parametrize("start", [".jsonl", ".parquet"])
def test_a_file_of_another_name_is_known_by_its_first_bytes(tmp_path, start):
    path = write(tmp_path / f"a{start}").rename(tmp_path / "log.txt")
    assert [int(row.values["n"]) for row in open_table(path).rows(["n"])] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", 'x,y\n"1,2\n', "line 2 is no CSV: unexpected end of data"),  # a quote that never closes
        ("a.csv", 'x,y\n"1"1,2\n', "line 2 is no CSV"),
        ("a.csv", "\nx,y\n", "has no header"),
        ("a.csv", " , \n1,2\n", "has no header"),
        ("a.csv", "x, x\n1,2\n", "line 1 names the column 'x' twice; rename one"),
        ("a.csv", "x,y\n\n1\n", r"line 3 has 1 values for 2 columns \(x, y\); quote values"),
        ("a.jsonl", '{"x": 1}\n\n[1]\n', "line 3 must be a JSON object.*must be one object"),
        ("a.jsonl", "{}\n", "holds no record"),
        ("a.txt", "x,y\n1,2\n", "is none of parquet, JSON lines and CSV.*name it with one of .parquet"),
    ],
)
def test_damage_is_refused_by_file_and_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ArgumentError, match=rf"{name}(, | ){message}"):
        len(open_table(path).columns), list(open_table(path).rows(["x"]))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_limits_are_those_of_the_caller_who_is_named_the_option(tmp_path, name):
    path = write(tmp_path / name, [{"x": "y" * 100}])
    list(open_table(path, limit=200).rows(["x"]))
    with pytest.raises(
        ArgumentError, match=r"longer than 50 bytes; is it one record a line\?; or raise most_bytes"
    ):
        list(open_table(path, limit=50, option="most_bytes").rows(["x"]))


def test_spaces_around_the_names_of_a_header_and_a_byte_order_mark_are_no_part_of_them(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("\ufeffx , y\n1, 2\n".encode())
    (row,) = open_table(path).rows(["x"])
    assert row.values == {"x": "1", "y": " 2"}


def test_two_csv_files_read_in_turn_keep_pythons_own_limit(tmp_path):
    before = csv.field_size_limit()
    tables = [
        open_table(write(tmp_path / name), limit=10**6 + i) for i, name in enumerate(("a.csv", "b.csv"))
    ]
    for _ in zip(*(table.rows(["q"]) for table in tables), strict=True):
        assert csv.field_size_limit() == before
    assert csv.field_size_limit() == before


def test_a_folder_stands_for_its_tables_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 9, 1):
        write(tmp_path / f"{number}.jsonl")
    (tmp_path / "notes.md").touch()
    assert [path.name for path in files_of([tmp_path])] == ["1.jsonl", "9.jsonl", "10.jsonl"]


def test_a_file_that_may_not_be_read_is_refused_by_name(tmp_path):
    with pytest.raises(ArgumentError, match=r"none\.jsonl cannot be read"):
        open_table(tmp_path / "none.jsonl")
