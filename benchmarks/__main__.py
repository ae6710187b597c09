"""The command line: ``python -m benchmarks [topic ...] [--quick]``."""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path

from benchmarks import machine, report

TOPICS = (
    *("speed", "memory", "pauses", "threads", "processes", "redis", "batches", "leases", "kv"),
    *(
        "rules",
        "simulate",
        "web",
        "service",
        "accuracy",
        "cells",
        "edge",
        "adaptive",
        "ledger",
        "regions",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="topic", help=f"of {', '.join(TOPICS)}")
    parser.add_argument("--quick", action="store_true", help="shorter and rougher")
    parser.add_argument("--out", type=Path, help="with edge alone: its picture")
    chosen = parser.parse_args()
    unknown = set(chosen.topics) - set(TOPICS)
    if unknown:
        parser.error(f"unknown topic {', '.join(sorted(unknown))}: use {', '.join(TOPICS)}")
    if chosen.out is not None:
        if chosen.topics != ["edge"]:
            parser.error("--out is for the topic edge alone")
        edge = importlib.import_module("benchmarks.edge")
        edge.run(path=chosen.out)
        print(f"wrote {chosen.out}")
        return
    run(chosen.topics or TOPICS, chosen.quick)


def run(topics: list[str] | tuple[str, ...], quick: bool) -> None:
    about = machine.describe()
    width = max(map(len, about))
    for name, value in about.items():
        print(f"{name:<{width}}  {value}")
    print()
    began = time.monotonic()
    tables: list[report.Table] = []
    for topic in topics:
        start = time.monotonic()
        found = importlib.import_module(f"benchmarks.{topic}").run(quick)
        for table in found:
            print(table.text(), end="\n\n")
        print(f"({topic}: {time.monotonic() - start:.0f} s)", end="\n\n", flush=True)
        tables += found
        report.write(about, tables)
    print(f"{time.monotonic() - began:.0f} s; tables and pictures are in {report.OUT}")


if __name__ == "__main__":
    main()
