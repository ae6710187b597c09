"""Keys of a shared store: readable, and no two sets of parts make the same one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import InvalidKey, keys

CASES = [
    ("user:42", "user:42", "user%3A42"),
    ("100/minute burst 200", "100/minute%20burst%20200", "100/minute%20burst%20200"),
    ("a{b}c", "a%7Bb%7Dc", "a%7Bb%7Dc"),
    ("50%", "50%25", "50%25"),
    ("line\nbreak\x00", "line%0Abreak%00", "line%0Abreak%00"),
    ('it\'s "so" \\', "it%27s%20%22so%22%20%5C", "it%27s%20%22so%22%20%5C"),
    ("日本", "日本", "日本"),
]


@pytest.mark.parametrize(("text", "last", "inside"), CASES)
def test_escapes_what_cannot_be_read_or_would_mislead(text: str, last: str, inside: str) -> None:
    assert keys.last_part(text) == last
    assert keys.part(text) == inside


def unescaped(text: str) -> str:
    pieces = text.split("%")
    return pieces[0] + "".join(chr(int(piece[:2], 16)) + piece[2:] for piece in pieces[1:])


@given(st.text(st.characters()))  # lone surrogates among them
def test_nothing_is_lost(text: str) -> None:
    assert unescaped(keys.last_part(text)) == text
    assert unescaped(keys.part(text)) == text
    assert keys.encode(text).decode("utf-8", "surrogatepass") == text


@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=2, max_size=2))
def test_different_parts_make_different_keys(both: list[tuple[str, str]]) -> None:
    joined = {f"{keys.part(limit)}:{keys.last_part(key)}" for limit, key in both}
    assert len(joined) == len(set(both))


def test_the_keys_of_a_shared_store() -> None:
    """Counters keep their names: another release must find them."""
    head = keys.counter_head("penstock", "1000/hour burst 2000")
    assert keys.counter_key(head, "a{b}:c") == b"penstock:1000/hour%20burst%202000:a%7Bb%7D:c"
    tagged = keys.counter_head("penstock", "5/minute", "a:b")
    assert keys.counter_key(tagged, "user:42") == b"penstock:{a%3Ab}:5/minute:user:42"
    assert keys.slot_keys("penstock", "re ports", 2) == (
        b"penstock:slots:{re%20ports}:held",
        b"penstock:slots:{re%20ports}:seen",
        b"penstock:slots:{re%20ports}:line1",
        b"penstock:slots:{re%20ports}:line2",
    )


def test_the_keys_of_descriptors() -> None:
    pairs = [("user", "a|b=c%"), ("path", "/cart x")]
    assert keys.descriptor_key("shop", pairs) == "shop|user=a%7Cb%3Dc%25|path=/cart x"
    assert keys.descriptor_key("a|b", []) == "a%7Cb"


def test_a_prefix_is_some_text() -> None:
    assert keys.check_prefix("shop:eu {1}") == "shop:eu%20%7B1%7D"
    for wrong in ("", None, b"x", 7):
        with pytest.raises(InvalidKey, match="a prefix is a non-empty str"):
            keys.check_prefix(wrong)


def test_leases_lie_in_the_slot_of_their_counter() -> None:
    plain = keys.counter_key(keys.counter_head("penstock", "100/minute"), "user:42")
    tagged = keys.counter_key(keys.counter_head("penstock", "100/minute", "acme"), "user:42")
    assert keys.lease_key("penstock", plain) == b"penstock:leases:{penstock:100/minute:user:42}"
    assert keys.lease_key("penstock", tagged) == (
        b"penstock:leases:penstock:{acme}:100/minute:user:42"
    )
