"""What is said of logs that cannot be read."""

from __future__ import annotations

import pytest

from penstock.replay.reading.formats import LogError
from penstock.replay.reading.guessing import format_of

TABLES = {
    "a table without a time": ([b"user,path", b"ana,/a"], "is known to be the time"),
    "text with commas": ([b"Hello, world, again", b"and more"], "unrecognised log format: 'Hello,"),
    "text": ([b"hello", b"world"], "unrecognised log format: 'hello'"),
    "broken JSON": ([b"{time: 1}"], "these are not JSON lines"),
    "nothing": ([], "the log is empty"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_log_that_cannot_be_read(name: str) -> None:
    lines, message = TABLES[name]
    with pytest.raises(LogError) as error:
        format_of(lines)
    assert message in str(error.value)
    assert ("--format" in str(error.value)) == ("unrecognised" in message)


@pytest.mark.parametrize(
    ("given", "line", "message"),
    [
        ("csv", b"Hello, world", "the first line of CSV has the names of its columns"),
        ("tsv", b"user\tpath", "is known to be the time"),
    ],
)
def test_a_given_table_says_what_is_missing(given: str, line: bytes, message: str) -> None:
    with pytest.raises(LogError, match=message):
        format_of([line, b"a"], given)
