"""Wrong rules for the fuzzer: random bytes, broken valid rules, and attacks on a parser."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

EVERYTHING = """\
domain: api
defaults: {algorithm: token_bucket, on_failure: local, share: 0.5}
allow: {ip: [10.0.0.0/8, "2001:db8::/32"], user: [admin]}
deny: {ip: [192.0.2.1]}
descriptors:
  - &base
    key: plan
    value: free
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 100, name: hourly}
        shadow_mode: true
        metadata: {team: [a, 1, 1.5, null], x: {y: z}}
      - key: path
        value: "/api/*"
        share_threshold: true
        rate_limit: {unlimited: true, replaces: [{name: hourly}]}
  - <<: *base
    value: paid
  - key: ip
    group: {ipv4: 24, ipv6: 56}
    allow: [10.0.0.0/8]
    deny: ["::1", bad]
    cost: 2
    limits:
      - 5/minute lockout 15m
      - {limit: 50/day, algorithm: sliding_window, cells: 20, rounding: up, name: slow}
      - {limit: 9/day, tz: Asia/Taipei}
      - {limit: 1000/hour, burst: 2000, debt: 5, warm_up: 1h}
      - {limit: 70/hour, soft: 20% for 10m}
      - {limit: 80/day, algorithm: sliding_log, count_rejected: true}
    plans: {by: ip, tiers: {free: 100/hour, all: []}, default: free}
    split: {percent: 12.5, limits: 200/hour, salt: summer}
    schedule:
      - {days: [sat, sunday], from: "09:00", to: 24:00, tz: UTC, limits: 500/hour}
    quota_mode: true
    detailed_metric: true
    value_to_metric: true
"""
_BAD = [path.read_text() for path in sorted(HERE.glob("bad/*.yaml"))]
SEEDS = [*_BAD, *[EVERYTHING] * len(_BAD)]  # what is valid leads further into the parser

# What stands where something else should.
WORDS = [
    "", "~", "null", "true", "no", "0", "-1", "1e999", "9" * 40, "1_000", "0x1F", "010", "1.5",
    ".inf", ".nan", "*", "*a", "&a", "&a x", "!!int 5", "!x", "[]", "{}", "[[", "}}", "''", '"',
    "|", ">", "---", "...", "# x", "%TAG", "? ", "- ", ": ", "\t", "<<: *base", "*base", "@", "`",
    "5/minute", "0/day", "99999999999999999999/day", "5/second burst 99999999999999",
    "1/10y soft 5 for 1ns", "1/s" * 500, "a" * 5000, "24:00", "Mars/Olympus", "../../etc/passwd",
    "10.0.0.0/99", "{file: /dev/zero}", "{file: .}", '"\\0"', "\u2028", "\x85", "\ufeff", "\x00",
    "\x7f", "\ud800", "😀", "ä" * 50, "2020-01-01", "=", "%", "/", "key", "value", "unit", "limits",
]  # fmt: skip
SCALARS = [word for word in WORDS if word.isprintable() and not set(word) & set("[]{}&*!|>'\"@`#:")]
KEYS = [
    "key", "value", "descriptors", "limits", "rate_limit", "plans", "split", "schedule", "group",
    "allow", "deny", "domain", "defaults", "name", "unit", "cost", "metadata", "file",
]  # fmt: skip

# A step that is a good place to keep anchors in.
HOLDER = ["domain: a", "descriptors:", "  - key: holder", "    limits: 1/s", "    metadata:"]

Chance = random.Random


def garbage(chance: Chance) -> str:
    data = chance.randbytes(chance.choice((1, 10, 100, 2000)))
    return data.decode(chance.choice(("utf-8", "latin-1")), "surrogateescape")


def punctuation(chance: Chance) -> str:
    """Text that is all syntax."""
    return "".join(chance.choices("{}[]-:,?&*!|>'\"%@`# \n\ta0", k=chance.choice((5, 50, 2000))))


def words_replaced(chance: Chance) -> str:
    parts = _split(chance.choice(SEEDS))
    for _ in range(chance.randint(1, 4)):
        parts[chance.randrange(len(parts))] = chance.choice(WORDS)
    return "".join(parts)


def values_changed(chance: Chance) -> str:
    """Still YAML, mostly: another scalar behind a colon."""
    parts = re.split(r"(?<=: )([\w./%*-]+)", chance.choice(SEEDS))
    for _ in range(chance.randint(1, 3)):
        if len(parts) > 1:
            parts[chance.randrange(1, len(parts), 2)] = chance.choice(SCALARS)
    return "".join(parts)


def characters_changed(chance: Chance) -> str:
    text = list(chance.choice(SEEDS))
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(text)) if text else 0
        what = chance.randrange(4)
        if what == 0:
            text[at : at + 1] = []
        elif what == 1:
            text[at:at] = chance.choice(WORDS)
        elif what == 2:
            text[at : at + 1] = chance.choice("{}[]-:,?&*!|>'\" \n\t\r\x00\x1b\ud800ä0")
        else:
            text[at:at] = text[at : at + chance.randint(1, 200)]
    return "".join(text)


def lines_changed(chance: Chance) -> str:
    lines = chance.choice(SEEDS).split("\n")
    for _ in range(chance.randint(1, 5)):
        at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        what = chance.randrange(6)
        if what == 0:
            lines[at:at] = lines[min(at, other) : max(at, other)][:20]
        elif what == 1:
            lines[at] = " " * chance.randint(0, 9) + lines[at].lstrip()
        elif what == 2:
            lines[at] = "\t" + lines[at]
        elif what == 3:
            lines[at], lines[other] = lines[other], lines[at]
        elif what == 4:
            lines[at] = f"{chance.choice(KEYS)}: {chance.choice(WORDS)}"
        elif len(lines) > 1:
            del lines[at]
    return chance.choice(("\n", "\n", "\r\n", "\r")).join(lines)


def two_halves(chance: Chance) -> str:
    one, two = chance.choice(SEEDS), chance.choice(SEEDS)
    return one[: chance.randrange(len(one) + 1)] + two[chance.randrange(len(two) + 1) :]


def nested(chance: Chance) -> str:
    levels = chance.choice((10, 49, 50, 51, 1000, 200_000))
    opening = chance.choice(("[", "{", "- ", "? ", "[? ", "{a: ", '{"a":\n', "!!map {", "&a ["))
    end = chance.choice(("", "]" * levels, "x"))
    return chance.choice(("", "domain: a\ndescriptors: ")) + opening * levels + end


def aliases(chance: Chance) -> str:
    """Each level names the one below several times; small enough, or far too large."""
    levels, width = chance.choice(((3, 9), (5, 8), (6, 6), (9, 9), (40, 9), (200, 2), (24, 2)))
    below = chance.choice(("x", "{key: k, limits: 5/day}", "{key: k, unit: 5}", "[]", "5/day"))
    lines = [*HOLDER, f"      a0: &a0 [{below}]"]
    for level in range(1, levels):
        name = f"a{level}" if chance.random() < 0.95 else "a0"
        many = ", ".join([f"*a{level - 1}"] * width)
        item = chance.choice((f"[{many}]", f"{{k: [{many}]}}", f"{{<<: [{many}]}}"))
        lines.append(f"      a{level}: &{name} {item}")
    use = chance.choice(("*a0", f"*a{levels - 1}", "[*a1, *a1]", "*a"))
    lines.append(f"  - {{key: top, {chance.choice(('descriptors', 'limits', 'metadata'))}: {use}}}")
    return "\n".join(lines)


def alias_steps(chance: Chance) -> str:
    """Valid rules, many from few lines."""
    levels = chance.randint(2, 5)
    lines = [*HOLDER, "      s0: &s0 [{key: k, limits: 5/day}]"]
    for level in range(1, levels):
        steps = ", ".join(
            f"{{key: k{i}, descriptors: *s{level - 1}}}" for i in range(chance.randint(1, 8))
        )
        lines.append(f"      s{level}: &s{level} [{steps}]")
    lines.append(
        f"  - {{key: top, descriptors: *s{levels - 1 if chance.random() < 0.9 else levels}}}"
    )
    return "\n".join(lines)


def many(chance: Chance) -> str:
    one = chance.choice((
        "  - {key: k%d, value: 'a*', limits: 5/day}", "  - {key: k, value: '*%d*', limits: 5/day}",
        "  - {key: k, limits: 5/day} # %d", "  - {kee: k%d}", "  - {key: k%d, cost: 0}", "  - x%d",
        "  k%d: 1", "--- %d", "%%TAG !e%d! tag:x,%d:", "  - {key: k%d, limits: 5/dya}",
    ))  # fmt: skip
    count = chance.choice((10, 300, 5000))
    numbers = ((i,) * (one.count("%d")) for i in range(count))
    return "domain: a\ndescriptors:\n" + "\n".join(one % number for number in numbers)


MUTATORS: list[Callable[[Chance], str]] = [
    garbage, punctuation, words_replaced, words_replaced, values_changed, values_changed,
    characters_changed, characters_changed, lines_changed, lines_changed, two_halves, nested,
    aliases, alias_steps, many,
]  # fmt: skip


def some_object(chance: Chance, depth: int = 0) -> Any:
    """Python values in the shape of rules, more or less."""
    what = chance.randrange(3 if depth > 6 else 7)
    if what < 3:
        odd = (None, True, -1, 10**5000, 1.5, float("nan"), b"x", {1}, object, ..., 7)
        return chance.choice((*WORDS, *odd))
    if what < 5:
        return [some_object(chance, depth + 1) for _ in range(chance.randrange(4))]
    mapping = {
        chance.choice((*KEYS, *KEYS, 5, None, "x")): some_object(chance, depth + 1)
        for _ in range(chance.randrange(5))
    }
    if depth == 0:
        mapping |= {"domain": "a", "descriptors": some_object(chance, depth + 1)}
    if chance.random() < 0.02:
        mapping["descriptors"] = [mapping]
    return mapping


def _split(text: str) -> list[str]:
    """Words and what is between them."""
    parts: list[str] = []
    for character in text:
        if parts and parts[-1].isalnum() and character.isalnum():
            parts[-1] += character
        else:
            parts.append(character)
    return parts


def inputs(chance: Chance) -> Iterator[str | object]:
    while True:
        if chance.random() < 0.1:
            yield some_object(chance)
        else:
            yield chance.choice(MUTATORS)(chance)
