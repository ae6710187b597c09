"""An access log for examples: eight hours of people, an office behind one address, and scrapers.

``python tests/replay/example_log.py access.log.gz`` writes it; the pages about logs use it.
"""

from __future__ import annotations

import gzip
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

START = 1_760_000_000
HOURS = 8
BROWSERS = [f"Mozilla/5.0 (X11) AppleWebKit/537.36 Chrome/{n}.0 Safari/537.36" for n in range(40)]
Line = tuple[float, str, str, str]  # time, address, path, agent


def visit(chance: random.Random, address: str, agent: str) -> Iterator[Line]:
    """A person who reads some pages, with their assets."""
    at = START + chance.uniform(0, HOURS * 3600 - 600)
    for _ in range(chance.randint(2, 8)):
        yield at, address, chance.choice(["/", "/search", "/item/7", "/cart", "/login"]), agent
        for asset in range(chance.randint(0, 3)):
            yield at + chance.uniform(0.1, 1.5), address, f"/static/{asset}.css", agent
        at += chance.expovariate(1 / 25)


def lines(seed: int = 5) -> list[Line]:
    chance = random.Random(seed)
    out: list[Line] = []
    for who in range(1500):
        for _ in range(chance.randint(1, 3)):
            out += visit(chance, f"192.0.{who >> 8}.{who & 255}", BROWSERS[who % len(BROWSERS)])
    for who in range(90):
        out += visit(chance, "198.51.100.7", BROWSERS[who % 30])
    for bot in range(3):
        begin = START + (600, 9000, 22_000)[bot]
        for at in range(5400):
            agent = "python-requests/2.31"
            out.append((begin + at / 3, f"203.0.113.{bot}", f"/item/{at}", agent))
    return sorted(out)


def write(path: Path) -> None:
    text = "".join(
        f"{address} - - [{time.strftime('%d/%b/%Y:%H:%M:%S +0000', time.gmtime(at))}]"
        f' "GET {target} HTTP/1.1" 200 {len(target) * 77} "-" "{agent}"\n'
        for at, address, target, agent in lines()
    )
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
