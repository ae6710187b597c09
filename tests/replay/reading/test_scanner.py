"""The compiled scanner and its twin read the same, whatever they are fed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._mode import REPLAY_COMPILED
from penstock.replay.reading import _scanner_pure as pure
from penstock.replay.reading.blocks import Block
from penstock.replay.reading.formats import COMBINED, CSV, JSON, LogFormat
from penstock.replay.reading.guessing import NAMED
from penstock.replay.reading.program import program
from penstock.replay.reading.server_formats import from_apache, from_nginx

if REPLAY_COMPILED:
    from penstock.replay.reading import _scanner as fast
else:  # then it is compared with itself
    fast = pure  # type: ignore[misc]

GIVEN = [
    b'192.0.2.1 - ann [10/Oct/2026:13:55:36 -0700] "GET /a?b=1 HTTP/1.1" 200 2326 "-"'
    b' "x \\"y\\" z"',
    b'2001:db8::1 - - [31/Dec/1999:23:59:60 +0000] "GET /" 400 - "https://e/" "Mozilla/5.0 (x)"',
    b'- - - [01/Jan/2026:00:00:00.123] "\\x16\\x03" 400 0 "" ""',
    b'[2026-01-31T12:00:00.123Z] "GET /a HTTP/1.1" 200 - 0 11 7 6 "192.0.2.9,10.0.0.1" '
    b'"curl/8" "id" "example.com" "10.0.0.7:80"',
    b'{"time":"2026-01-31T12:00:00+01:00","remote_addr":"192.0.2.1","path":"/a\\"b","bytes":5,'
    b'"request":{"uri":"/x","headers":{"User-Agent":["curl"]}},"tags":[1,{"a":"]"}],"n":null}',
    b'{"msec":1700000000.123456, "status": 200, "request_time": 0.25 }',
    b'2026-01-31 12:00:00,192.0.2.1,"/a ""b"", c",200,5',
    b"h2 2026-01-31T12:00:01.5Z app/lb 192.0.2.1:2817 10.0.0.1:80 0.0 0.1 0.2 200 200 34 366 "
    b'"GET https://e:443/p?q HTTP/2.0" "curl" - - arn "Root" "e" "arn" 0 '
    b'2026-01-31T12:00:01.300000Z "forward"',
    b"x haproxy[1]: [::1]:5000 [06/Feb/2026:12:14:14.655] in back/s1 10/0/30/69/109 200 2750 - -"
    b' ---- 1/1/1/1/0 0/0 "GET /i HTTP/1.1"',
]
FORMATS: list[LogFormat] = [
    *NAMED.values(),
    from_nginx('$msec $request_time "$http_user_agent" $remote_addr $request_uri $status'),
    from_apache(r'%h %l %u %t \"%r\" %>s %b %D'),
    LogFormat(
        "JSON", JSON,
        names={
            "time": "time_iso", "remote_addr": "peer", "path": "target", "bytes": "bytes",
            "request.uri": "field:u", "request.headers.User-Agent": "header:user-agent",
            "tags": "field:t", "n": "user", "status": "status",
        },
    ),
    LogFormat("JSON", JSON, names={"msec": "time_s", "request_time": "duration_s"}),
    LogFormat(
        "CSV", CSV,
        names={"t": "time_iso", "a": "peer", "p": "target", "s": "status", "b": "bytes"},
        columns=("t", "a", "p", "s", "b"),
    ),
]  # fmt: skip
WORDS = ["peer", "user", "method", "target", "host", "header:user-agent", "field:u", "field:t"]
NUMBERS = ["status", "bytes", "duration"]


def read(module: Any, log_format: LogFormat, data: bytes, room: int = 64) -> Any:
    made = program(log_format, WORDS, NUMBERS)
    interners = [module.Interner() for _ in WORDS]
    scanner = module.Scanner(
        made.how, made.head, made.steps, interners, len(NUMBERS), log_format.separator, 3600 * 10**9
    )
    block = Block(len(WORDS), len(NUMBERS), room)
    end = scanner.scan(data, 0, block)
    rows = [
        (
            block.times[at],
            [
                interner.text(column[at])
                for interner, column in zip(interners, block.words, strict=True)
            ],
            [column[at] for column in block.numbers],
        )
        for at in range(block.n)
    ]
    return end, rows, scanner.lines, scanner.malformed, scanner.shown


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """Lines of logs, with some bytes changed, cut or doubled."""
    out = []
    for line in draw(st.lists(st.sampled_from(GIVEN), min_size=1, max_size=4)):
        text = bytearray(line)
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, max(0, len(text) - 1)))
            change = draw(st.sampled_from(["set", "cut", "drop", "insert"]))
            byte = draw(st.sampled_from(list(b'" \\{}[],:-0169Z+/.\t\r\x00\xffn')))
            if change == "set" and text:
                text[at] = byte
            elif change == "cut":
                del text[at:]
            elif change == "drop":
                del text[at : at + 1]
            else:
                text.insert(at, byte)
        out.append(bytes(text))
    return b"\n".join(out) + draw(st.sampled_from([b"\n", b"", b"\r\n"]))


@pytest.mark.skipif(not REPLAY_COMPILED, reason="there is one scanner only")
@settings(max_examples=400, deadline=None)
@given(st.sampled_from(FORMATS), lines(), st.sampled_from([64, 1]))
def test_both_scanners_read_the_same(log_format: LogFormat, data: bytes, room: int) -> None:
    assert read(fast, log_format, data, room) == read(pure, log_format, data, room)


@pytest.mark.parametrize("module", [fast, pure])
def test_every_example_is_read_by_a_format(module: Any) -> None:
    for line in GIVEN:
        assert any(read(module, each, line + b"\n")[1] for each in FORMATS), line


@pytest.mark.parametrize("module", [fast, pure])
def test_combined(module: Any) -> None:
    _, rows, lines, malformed, shown = read(
        module, COMBINED, GIVEN[0] + b"\n\nno line\n" + GIVEN[1] + b"\n"
    )
    time, words, numbers = rows[0]
    assert time == 1791665736 * 10**9
    assert words[:4] == [b"192.0.2.1", b"ann", b"GET", b"/a"]
    assert words[5] == b'x \\"y\\" z'
    assert numbers == [200, 2326, -1]
    assert rows[1][1][:4] == [b"2001:db8::1", None, b"GET", b"/"]
    assert (lines, malformed, shown) == (4, 1, [(3, b"no line")])


@pytest.mark.parametrize("module", [fast, pure])
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-31T12:00:00Z", 1769860800),
        ("2026-01-31T12:00:00+02:00", 1769860800 - 7200),
        ("2026-01-31T12:00:00-0130", 1769860800 + 5400),
        ("2026-01-31 12:00:00", 1769860800 - 3600),  # by the zone that was given
        ("2024-02-29T00:00:00Z", 1709164800),
        ("1969-12-31T23:59:59Z", None),
        ("2026-13-01T00:00:00Z", None),
        ("2026-01-31T24:00:00Z", None),
        ("tomorrow", None),
    ],
)
def test_times(module: Any, text: str, seconds: int | None) -> None:
    log_format = LogFormat("JSON", JSON, names={"t": "time_iso"})
    _, rows, *_ = read(module, log_format, json.dumps({"t": text}).encode() + b"\n")
    assert [row[0] for row in rows] == ([] if seconds is None else [seconds * 10**9])


@pytest.mark.parametrize("module", [fast, pure])
def test_lines_of_json_may_be_written_differently(module: Any) -> None:
    log_format = LogFormat("JSON", JSON, names={"t": "time_s", "ip": "peer", "s": "status"})
    lines = [
        b'{"t":1700000000,"ip":"192.0.2.1","s":200}',
        b'{"t": 1700000000, "ip": "192.0.2.1", "s": 200}',
        b'{"t":1700000000 ,"ip":"192.0.2.1","s":null,"s":200}',
        b'{"ip":"192.0.2.1","t":1700000000,"s":200}',
        b'{"t":1700000000,"ip":["192.0.2.1"],"s":"200"}',
        b'{"x":{"t":1},"t":1700000000,"ip":"192.0.2.1","s":200}',
        b'{"t":1700000000,"ip":"192.0.2.1","s":200}',
    ]
    _, rows, *_ = read(module, log_format, b"\n".join(lines) + b"\n")
    assert len(rows) == len(lines)
    assert {(row[0], row[1][0], row[2][0]) for row in rows} == {
        (1700000000 * 10**9, b"192.0.2.1", 200)
    }
