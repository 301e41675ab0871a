"""What is larger than a limit is refused by its size and the limit, before it is held."""

import io
import os

import pytest

from neyman._files import limits
from neyman._files.limits import numbered_lines, read_bytes
from neyman.errors import StateError


def test_a_file_is_read_up_to_its_limit_and_refused_beyond(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_bytes(path, 100) == b"x" * 100
    with pytest.raises(ValueError, match="100 bytes, more than the limit of 99 bytes"):
        read_bytes(path, 99)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
def test_what_has_no_size_is_read_no_further_than_the_limit():
    for size in (99, 100):
        out, into = os.pipe()
        os.write(into, b"x" * size)
        os.close(into)
        if size == 99:
            assert read_bytes(_Pipe(out), 99) == b"x" * 99
        else:
            with pytest.raises(ValueError, match="100 bytes"):
                read_bytes(_Pipe(out), 99)


class _Pipe:
    """Opens a pipe as a path opens its file."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def open(self, mode):
        return os.fdopen(self._descriptor, mode)


def test_lines_are_numbered_and_a_long_one_is_refused_with_the_advice(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_LINE", 4)
    path = tmp_path / "lines"
    assert list(numbered_lines(io.BytesIO(b"a\nbcd\n\nend"), path, first=7)) == [
        (7, b"a\n"),
        (8, b"bcd\n"),
        (9, b"\n"),
        (10, b"end"),
    ]
    with pytest.raises(StateError, match=r"lines, line 2: longer than 4 bytes; go away"):
        list(numbered_lines(io.BytesIO(b"a\nbcde\n"), path, advice="go away"))
