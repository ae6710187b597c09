"""Broken lines and formats of logs, for as long as asked: ``fuzz.py --minutes 10``.

Both scanners must read the same, every error must be a `LogError`, and no line may take long.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from penstock.replay.reading.formats import LogError
from penstock.replay.reading.guessing import format_of
from penstock.replay.reading.server_formats import (
    from_apache,
    from_envoy,
    from_nginx,
    in_nginx_conf,
)
from replay.reading.test_scanner import FORMATS, GIVEN, fast, pure, read

PIECES = [
    b'"', b"\\", b" ", b"{", b"}", b"[", b"]", b":", b",", b"-", b"\x00", b"\xff", b"0" * 30,
    b"9" * 25, b"\r", b"\t", b"/Oct/2026:", b"2026-01-31T12:00:00", b"null", b"%2f", b"::",
    b"{" * 200,
]  # fmt: skip
WORDS = [
    "$remote_addr", "$msec", "${request}", "%h", "%t", "%{", "}i", "%>s", "%START_TIME%", "%REQ(",
    ")%", "%%", "'", '"', ";", " ", "log_format ", "main ", "access_log x main;", "\\", "\n", "$",
]  # fmt: skip


def broken_line(chance: random.Random) -> bytes:
    line = bytearray(chance.choice(GIVEN))
    for _ in range(chance.randrange(6)):
        at = chance.randrange(len(line) + 1)
        how = chance.randrange(4)
        if how == 0:
            line[at:at] = chance.choice(PIECES)
        elif how == 1:
            del line[at : at + chance.randrange(1, 20)]
        elif how == 2 and line:
            line[min(at, len(line) - 1)] = chance.randrange(256)
        else:
            line[at:at] = chance.choice(GIVEN)[: chance.randrange(60)]
    return bytes(line)


def run(minutes: float, seed: int) -> int:
    chance = random.Random(seed)
    until = time.monotonic() + 60 * minutes
    rounds = 0
    while time.monotonic() < until:
        rounds += 1
        data = b"\n".join(broken_line(chance) for _ in range(chance.randrange(1, 6))) + b"\n"
        log_format = chance.choice(FORMATS)
        began = time.process_time()
        assert read(fast, log_format, data) == read(pure, log_format, data), (log_format, data)
        for parse in (from_nginx, from_apache, from_envoy, in_nginx_conf):
            text = "".join(chance.choices(WORDS, k=chance.randrange(1, 12)))
            try:
                made = parse(text)
                read(fast, made, data)
            except LogError:
                pass
            except ValueError as error:  # a text between fields that is too long
                if "at most" not in str(error):
                    raise
        with contextlib.suppress(LogError):
            format_of(data.splitlines())
        assert time.process_time() - began < 5, (log_format, data)
    return rounds


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(f"{run(arguments.minutes, arguments.seed)} rounds, no failure")
