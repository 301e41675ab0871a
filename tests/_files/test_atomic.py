"""A file is the old one or the new one, never a part of it."""

import pytest

from neyman._files.atomic import atomic, write_atomic


def test_a_writing_that_fails_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def fail():
        with atomic(path) as file:
            file.write(b"new, and half of")
            file.flush()
            assert path.read_bytes() == b"old"
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_readers_of_the_old_content_keep_it(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    with path.open("rb") as reader:
        write_atomic(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
