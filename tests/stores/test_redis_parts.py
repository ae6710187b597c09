"""The parts of RedisStore that need no server: addresses, breaker, errors, shares, clock."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("redis")

import redis
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.sentinel import Sentinel

from penstock import Limit, StoreError
from penstock.circuit import CLOSED, HALF_OPEN, OPEN
from penstock.stores.redis import RedisStore
from penstock.stores.redis.address import read_target
from penstock.stores.redis.fallback import scaled
from penstock.stores.redis.reconnect import Breaker
from penstock.stores.redis.server import ServerClock
from penstock.stores.redis.server_errors import ServerError, redirection, server_error

# Addresses -------------------------------------------------------------------------

URLS = [
    ("redis://localhost", "localhost:6379"),
    ("redis://localhost:7000/3", "localhost:7000/3"),
    ("valkey://10.0.0.1:6380", "10.0.0.1:6380"),
    ("redis://[::1]:6379/1", "[::1]:6379/1"),
    ("rediss://user:secret@cache.example:6380/0", "cache.example:6380"),
    ("valkeys://:secret@cache.example", "cache.example:6379"),
    ("unix:///run/redis.sock?db=2", "/run/redis.sock/2"),
    ("redis+sentinel://u:secret@a:26379,b/mymaster/2", "sentinel mymaster a:26379,b:26379"),
    ("redis+cluster://u:secret@a:7000,b:7001", "cluster a:7000,b:7001"),
    ("rediss+cluster://a", "cluster a:6379"),
]


@pytest.mark.parametrize(("url", "shown"), URLS)
def test_reads_urls_and_shows_no_secret(url: str, shown: str) -> None:
    target = read_target(url)
    assert str(target) == shown
    assert "secret" not in f"{target!r} {target.seeds!r} {RedisStore(url)!r}"


def test_passwords_reach_the_servers_that_they_are_for() -> None:
    target = read_target("redis+sentinel://u:p%40ss@a:1,b:2/name/3?sentinel_password=other")
    assert target.master is not None
    assert target.master.settings["password"] == "p@ss"
    assert target.master.settings["db"] == 3
    assert [seed.settings["password"] for seed in target.seeds] == ["other", "other"]
    assert not any("username" in seed.settings or "db" in seed.settings for seed in target.seeds)


WRONG_URLS = [
    ("http://localhost", "starts with redis://"),
    ("localhost:6379", "starts with redis://"),
    ("redis://:hush/hush@host", "cannot read the store's URL"),
    ("redis://:h[ush@host", "cannot read the store's URL"),
    ("redis://host:hush", "cannot read the store's URL"),
    ("redis://host/hush", "the database in a URL is a number"),
    ("redis://host/1/2", "the database in a URL is a number"),
    ("redis://a,b", "names one server"),
    ("redis+sentinel://a:1", "name the service"),
    ("redis+cluster://a:1/2", "a cluster has no numbered databases"),
    ("redis://:hush@host?sokcet_timeout=1", "the options of host:6379 do not work"),
    ("redis://:hush@host?db=x", "cannot read the store's URL"),
]


@pytest.mark.parametrize(("url", "message"), WRONG_URLS)
def test_a_wrong_url_is_an_error_without_its_secret(url: str, message: str) -> None:
    with pytest.raises(StoreError) as caught:
        read_target(url)
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_takes_the_settings_of_a_client() -> None:
    for kind in (redis.Redis, redis.asyncio.Redis):
        target = read_target(kind(host="cache", port=7, db=2, password="secret", username="u"))
        assert str(target) == "cache:7/2"
        assert target.seeds[0].settings["password"] == "secret"
        assert str(read_target(kind(unix_socket_path="/run/r.sock"))) == "/run/r.sock"
        secure = read_target(kind(host="cache", ssl=True, ssl_ca_certs="/ca.pem"))
        assert secure.seeds[0].kind is redis.asyncio.connection.SSLConnection
        assert secure.seeds[0].settings["ssl_ca_certs"] == "/ca.pem"
    for kind in (Sentinel, AsyncSentinel):
        sentinel = kind([("a", 1), ("b", 2)], sentinel_kwargs={"password": "x"}, password="y")
        target = read_target(sentinel.master_for("name", db=1))
        assert str(target) == "sentinel name a:1,b:2"
        assert target.master is not None
        assert target.master.settings["password"] == "y"
        assert target.seeds[0].settings["password"] == "x"


def test_what_is_no_client_is_refused() -> None:
    for wrong in (None, 7, b"redis://a", object()):
        with pytest.raises(TypeError, match=r"a URL.* or a redis-py client"):
            RedisStore(wrong)


WRONG_OPTIONS = [
    ({"deadline": 0}, "deadline"),
    ({"deadline": "soon"}, "deadline"),
    ({"on_failure": "shrug"}, "unknown on_failure 'shrug'"),
    ({"share": 0}, "share is a number above 0"),
    ({"share": 1.5}, "share is a number above 0"),
    ({"prefix": ""}, "a prefix is a non-empty str"),
    ({"tag": ""}, "non-empty str"),
    ({"max_pending": 0}, "max_pending"),
    ({"connect_timeout": -1}, "connect_timeout"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS)
def test_wrong_options_are_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RedisStore("redis://localhost", **options)  # type: ignore[arg-type]


# The breaker ---------------------------------------------------------------------------


def test_opens_after_two_deadlines_in_a_row_and_not_before() -> None:
    breaker = Breaker(0.01)
    assert not breaker.missed(1.0)
    assert not breaker.missed(1.001), "those who were under way together count once"
    breaker.answered()
    assert not breaker.missed(2.0)
    assert breaker.missed(2.02)
    assert breaker.trip(2.02, "slow")
    assert not breaker.trip(2.03, "still"), "it was open already"
    assert (breaker.state, breaker.opened_at, breaker.reason) == (OPEN, 2.02, "still")


def test_pauses_grow_to_a_bound_and_vary_by_chance() -> None:
    longest = Breaker(0.01, chance=lambda: 1.0)
    assert [longest.pause() for _ in range(5)] == [0.05, 0.1, 0.2, 0.3, 0.3]
    shortest = Breaker(0.01, chance=lambda: 0.0)
    assert [shortest.pause() for _ in range(4)] == [0.025, 0.05, 0.1, 0.15]
    longest.probe()
    assert longest.state == HALF_OPEN
    longest.close()
    assert (longest.state, longest.pause()) == (CLOSED, 0.05)


# Errors ----------------------------------------------------------------------------------

ERRORS = [
    ("NOSCRIPT No matching script.", ServerError.NO_SCRIPT),
    ("MOVED 3999 127.0.0.1:6381", ServerError.MOVED),
    ("ASK 3999 127.0.0.1:6381", ServerError.ASK),
    ("LOADING Redis is loading the dataset in memory", ServerError.LOST_MASTER),
    ("READONLY You can't write against a read only replica.", ServerError.LOST_MASTER),
    (
        "ERR Error running script (call to f_1): @user_script:1: @user_script: 7: -READONLY You"
        " can't write against a read only replica.",
        ServerError.LOST_MASTER,
    ),
    ("OOM command not allowed when used memory > 'maxmemory'.", ServerError.UNAVAILABLE),
    ("NOPERM this user has no permissions", ServerError.UNAVAILABLE),
    ("WRONGTYPE Operation against a key", ServerError.FOREIGN),
    ("PENSTOCK the value of this key is not a row of token_bucket", ServerError.FOREIGN),
    ("DAMAGED the row of this key made no sense", ServerError.DAMAGED),
    ("ERR unknown command 'EVALSHA'", ServerError.WRONG),
    ("ERR user_script:1: attempt to index nil", ServerError.WRONG),
    ("", ServerError.WRONG),
]


@pytest.mark.parametrize(("text", "what"), ERRORS)
def test_knows_what_an_error_means(text: str, what: ServerError) -> None:
    assert server_error(Exception(text)) is what


def test_reads_where_a_slot_has_gone() -> None:
    assert redirection(Exception("MOVED 3999 127.0.0.1:6381")) == (3999, "127.0.0.1", 6381)
    assert redirection(Exception("ASK 7 [::1]:6381")) == (7, "::1", 6381)
    assert redirection(Exception("MOVED 7 :6381")) == (7, "", 6381)


# Shares ------------------------------------------------------------------------------------

SHARES = [
    ("100/minute", 0.25, "25/minute"),
    ("100/minute burst 10", 0.25, "25/minute burst 2"),
    ("10/minute", 0.25, "2/minute"),
    ("1/minute", 0.25, "1/4m"),
    ("3/hour burst 1", 0.25, "1/4800s"),
    ("2/day fixed_window tz UTC", 0.25, "1/day fixed_window tz UTC"),
    ("100/hour debt 8", 0.25, "25/hour debt 2"),
    ("100/hour debt 3", 0.25, "25/hour"),
    (
        "100/hour sliding_window cells 4 lockout 5m",
        0.5,
        "50/hour sliding_window cells 4 lockout 5m",
    ),
    ("100/hour sliding_log count_rejected", 0.5, "50/hour sliding_log count_rejected"),
    ("100/hour soft 10 for 5m", 0.5, "50/hour soft 5 for 5m"),
    ("100/hour leaky_bucket warm_up 5m", 0.5, "50/hour leaky_bucket warm_up 5m"),
    ("100/minute on_failure local share 0.5", 1, "100/minute on_failure local share 0.5"),
]


@pytest.mark.parametrize(("whole", "share", "part"), SHARES)
def test_a_share_is_rounded_down(whole: str, share: float, part: str) -> None:
    assert scaled(Limit.parse(whole), share) == Limit.parse(part)


def test_every_kind_of_limit_has_a_share() -> None:
    from penstock.testing.conformance import LIMITS

    for text, share in itertools.product([*LIMITS, "1/year warm_up 1h"], (0.001, 0.3, 0.99)):
        if text.startswith("1/year"):
            text = "1/day warm_up 1h"
        assert scaled(Limit.parse(text), share).amount >= 1


# The server's time ----------------------------------------------------------------------------


def test_the_servers_time_is_never_told_ahead() -> None:
    clock = ServerClock()
    clock.seen(1_000_000, 100)  # written at 1_000_000, read here at 100
    assert clock.at(150) == 1_000_050
    clock.seen(1_000_500, 700)  # came slowly: the other bound is better
    assert clock.at(700) == 1_000_600
    clock.seen(1_001_000, 800)  # came quickly
    assert clock.at(800) == 1_001_000
    later = 800 + 2 * 10**9
    clock.seen(5_000, later)  # its clock was set back: believed when the old bound is old
    assert clock.at(later) == 5_000
