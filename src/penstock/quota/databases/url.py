"""Ledgers by URL: ``sqlite:///quota.db`` or ``postgresql://user:password@host/database``."""

from __future__ import annotations

import difflib
from urllib.parse import unquote

from penstock.quota.databases.base import Database
from penstock.quota.databases.sqlite import SQLiteDatabase
from penstock.quota.errors import InvalidQuota

_SCHEMES = ("sqlite", "postgresql", "postgres")
FORMS = "'sqlite:///quota.db', 'sqlite:////var/lib/quota.db' or 'postgresql://user@host/database'"


def database_from_url(url: object, deadline: float) -> Database:
    """As in SQLAlchemy: three slashes before a relative path, four before an absolute one.

    ``deadline`` is how long a statement may take, in seconds.
    """
    if not isinstance(url, str):
        raise InvalidQuota(f"a ledger's URL is a str such as {FORMS}, not {url!r:.100}")
    scheme, colon, rest = url.partition(":")
    if scheme == "sqlite" and rest.startswith("///") and len(rest) > 3:
        path = unquote(rest[3:])
        if path in (":memory:", "/") or "?" in path or "\0" in path:
            raise InvalidQuota(f"a ledger is kept in a file: write {FORMS}")
        return SQLiteDatabase(path, deadline)
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        from penstock.quota.databases.postgres import PostgresDatabase  # imported here: an extra

        try:
            return PostgresDatabase(url, deadline)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError):
                raise
            # Without the URL: any part of it may be a part of a password.
            raise InvalidQuota(f"the ledger's URL cannot be read: write {FORMS}") from None
    if scheme in _SCHEMES:
        raise InvalidQuota(f"the ledger's URL is incomplete after {scheme!r}: write {FORMS}")
    close = difflib.get_close_matches(scheme.lower(), _SCHEMES, 1) if colon else []
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise InvalidQuota(f"a ledger's URL does not begin with {scheme!r:.40}{hint}: write {FORMS}")
