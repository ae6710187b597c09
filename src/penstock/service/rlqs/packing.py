"""Accounts, requests and replies as bytes: as `bank.lua` has them."""

from __future__ import annotations

import struct
from importlib import resources

from penstock.service.rlqs.account import Account, Holder, Reply
from penstock.service.rlqs.bank import Entry
from penstock.service.rlqs.shares import Terms

MARK = b"rlqs1"
# Of a holder, in the order of NUMBERS in bank.lua.
_FIELDS = (
    "burst", "rate", "number", "end", "old_burst", "old_rate", "old_end", "arrived", "demand",
    "requests", "since", "seen", "provable", "told", "interval",
)  # fmt: skip
_HEAD, _NUMBERS = struct.Struct("<5d"), struct.Struct("<15d")
_REQUEST, _REPLY = struct.Struct("<10d"), struct.Struct("<12d")

_SERVER_TIME = """\
local time = redis.call('TIME')
local now, LINGER = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), 0
"""
# In tests, the last arguments are the time, and how much longer keys live.
_TEST_TIME = "local now, LINGER = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])\n"


def bank_script(test_clock: bool = False) -> str:
    """The text of the bank's script."""
    text = resources.files("penstock.service.rlqs").joinpath("bank.lua").read_text("utf-8")
    return (_TEST_TIME if test_clock else _SERVER_TIME) + text


def pack_entry(entry: Entry) -> bytes:
    terms, request = entry.terms, entry.request
    numbers = _REQUEST.pack(
        *terms, request.kind, request.requests, request.sent, request.proven, request.burst,
        request.rate, request.provable,
    )  # fmt: skip
    return numbers + _text(request.holder) + _text(request.stream)


def unpack_reply(data: bytes) -> Reply:
    (status, burst, rate, number, wanted, wait, nodes, demand, total, rate_out, burst_out, free) = (
        _REPLY.unpack(data)
    )
    return Reply(
        int(status), int(burst), int(rate), int(number), int(wanted), int(wait), int(nodes),
        demand, total, int(rate_out), int(burst_out), int(free),
    )  # fmt: skip


def pack_account(account: Account) -> bytes:
    parts = [MARK, b"\0", _HEAD.pack(*account.terms, account.free, account.at)]
    for each in account.holders.values():
        numbers = [getattr(each, field) for field in _FIELDS]
        parts += [_text(each.name), _text(each.stream), _NUMBERS.pack(*numbers)]
    return b"".join(parts)


def unpack_account(data: bytes) -> Account:
    """`ValueError` if it is none."""
    try:
        mark, at = _text_at(data, 0)
        if mark.encode() != MARK:
            raise ValueError("not an account")
        rate, burst, interval, free, moment = map(int, _HEAD.unpack_from(data, at))
        account = Account(Terms(rate, burst, interval), free, moment)
        at += _HEAD.size
        while at < len(data):
            name, at = _text_at(data, at)
            stream, at = _text_at(data, at)
            holder = account.holders[name] = Holder(name, stream)
            for field, number in zip(_FIELDS, _NUMBERS.unpack_from(data, at), strict=True):
                setattr(holder, field, number if field == "demand" else int(number))
            holder.provable = bool(holder.provable)
            at += _NUMBERS.size
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(f"not an account: {error}") from None
    return account


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _text_at(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at)
    if end < 0:
        raise ValueError("not an account: a text does not end")
    return data[at:end].decode(), end + 1
