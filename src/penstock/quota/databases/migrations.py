"""The tables' definitions, by version, for both databases.

A migration is a list of statements. All that are missing run in one transaction, and the version
is written in the same. There is no way back; a database of a later version is left untouched.
"""

from __future__ import annotations

from penstock.quota.databases.tables import VERSION
from penstock.quota.errors import LedgerVersion

_TABLES = """
CREATE TABLE penstock_ledger (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL,
    changes BIGINT NOT NULL
);
INSERT INTO penstock_ledger VALUES (1, 0, 0);
CREATE TABLE penstock_plan (name TEXT PRIMARY KEY, definition TEXT NOT NULL);
CREATE TABLE penstock_account (
    id TEXT PRIMARY KEY,
    tz TEXT NOT NULL,
    anchor_day BIGINT NOT NULL CHECK (anchor_day BETWEEN 1 AND 31),
    anchor_month BIGINT NOT NULL CHECK (anchor_month BETWEEN 1 AND 12),
    plan TEXT REFERENCES penstock_plan,
    next_plan TEXT REFERENCES penstock_plan,
    next_at BIGINT NOT NULL,
    credits BIGINT NOT NULL,
    due BIGINT NOT NULL,
    opened BIGINT NOT NULL
);
CREATE TABLE penstock_balance (
    account TEXT NOT NULL REFERENCES penstock_account,
    meter TEXT NOT NULL,
    granted BIGINT NOT NULL CHECK (granted >= 0),
    spent BIGINT NOT NULL CHECK (spent >= 0),
    held BIGINT NOT NULL CHECK (held >= 0),
    overdraft BIGINT NOT NULL CHECK (overdraft >= 0),
    plan_overdraft BIGINT NOT NULL CHECK (plan_overdraft >= 0),
    debt BIGINT NOT NULL CHECK (debt >= 0),
    debt_held BIGINT NOT NULL CHECK (debt_held >= 0),
    period BIGINT NOT NULL,
    PRIMARY KEY (account, meter),
    CONSTRAINT never_below_the_overdraft CHECK (granted + overdraft >= spent + held)
);
CREATE TABLE penstock_credit (
    account TEXT NOT NULL REFERENCES penstock_account,
    number BIGINT NOT NULL,
    meter TEXT NOT NULL,
    kind TEXT NOT NULL,
    amount BIGINT NOT NULL CHECK (amount > 0),
    used BIGINT NOT NULL CHECK (used >= 0),
    held BIGINT NOT NULL CHECK (held >= 0),
    gone BIGINT NOT NULL CHECK (gone >= 0),
    starts BIGINT NOT NULL,
    ends BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    rollover BIGINT NOT NULL,
    ref TEXT NOT NULL,
    state BIGINT NOT NULL,
    note TEXT NOT NULL,
    who TEXT NOT NULL,
    PRIMARY KEY (account, number),
    CONSTRAINT never_more_than_granted CHECK (used + held + gone <= amount)
);
CREATE UNIQUE INDEX penstock_credit_ref ON penstock_credit (account, ref)
    WHERE kind IN ('top-up', 'promo');
CREATE INDEX penstock_credit_open ON penstock_credit (account) WHERE state < 3;
CREATE TABLE penstock_period (
    account TEXT NOT NULL REFERENCES penstock_account,
    meter TEXT NOT NULL,
    starts BIGINT NOT NULL,
    ends BIGINT NOT NULL,
    plan TEXT NOT NULL,
    unit TEXT NOT NULL,
    amount BIGINT NOT NULL,
    spent BIGINT NOT NULL CHECK (spent >= 0),
    uncovered BIGINT NOT NULL CHECK (uncovered >= 0),
    ended BIGINT NOT NULL,
    PRIMARY KEY (account, meter, starts)
);
CREATE UNIQUE INDEX penstock_period_current ON penstock_period (account, meter) WHERE ended = 0;
CREATE TABLE penstock_hold (
    account TEXT NOT NULL REFERENCES penstock_account,
    id TEXT NOT NULL,
    meter TEXT NOT NULL,
    kind TEXT NOT NULL,
    granted BIGINT NOT NULL CHECK (granted >= 0),
    settled BIGINT NOT NULL CHECK (settled >= 0),
    returned BIGINT NOT NULL CHECK (returned >= 0),
    uncovered BIGINT NOT NULL CHECK (uncovered >= 0),
    remaining BIGINT NOT NULL CHECK (remaining >= 0),
    parts TEXT NOT NULL,
    expires BIGINT NOT NULL,
    period BIGINT NOT NULL,
    created BIGINT NOT NULL,
    open BIGINT NOT NULL,
    PRIMARY KEY (account, id)
);
CREATE INDEX penstock_hold_open ON penstock_hold (account, expires) WHERE open = 1;
CREATE TABLE penstock_entry (
    account TEXT NOT NULL REFERENCES penstock_account,
    meter TEXT NOT NULL,
    period BIGINT NOT NULL,
    kind TEXT NOT NULL,
    amount BIGINT NOT NULL,
    held BIGINT NOT NULL,
    source TEXT NOT NULL,
    idem TEXT NOT NULL,
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    note TEXT NOT NULL,
    seq BIGINT PRIMARY KEY,
    UNIQUE (account, idem)
);
CREATE INDEX penstock_entry_of_account ON penstock_entry (account, seq);
"""

_SQLITE_TRIGGERS = [
    f"""CREATE TRIGGER penstock_entry_{verb.lower()} BEFORE {verb} ON penstock_entry
    BEGIN SELECT RAISE(ABORT, 'entries of the ledger are append-only'); END"""
    for verb in ("UPDATE", "DELETE")
]
_POSTGRES_TRIGGERS = [
    """CREATE FUNCTION penstock_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'entries of the ledger are append-only'; END $$""",
    """CREATE TRIGGER penstock_entry_kept BEFORE UPDATE OR DELETE ON penstock_entry
    FOR EACH ROW EXECUTE FUNCTION penstock_append_only()""",
    """CREATE TRIGGER penstock_entry_not_emptied BEFORE TRUNCATE ON penstock_entry
    FOR EACH STATEMENT EXECUTE FUNCTION penstock_append_only()""",
]
# Rows that change often find room on their page.
_POSTGRES_STORAGE = [
    f"ALTER TABLE penstock_{table} SET (fillfactor = 50)"
    for table in ("balance", "credit", "period", "hold")
]


def _statements(text: str) -> list[str]:
    return [statement.strip() for statement in text.split(";") if statement.strip()]


_VERSION_TABLE = "CREATE TABLE penstock_schema (version BIGINT NOT NULL)"

# Version 2. What a holder has used or given back beyond what it was granted counts as granted.
_HOLDS_ADD_UP = """UPDATE penstock_hold SET granted = settled + returned + remaining
    WHERE kind <> 'source'"""
# Entries of holds and sources need no name: the totals in their rows only grow. An index of names
# for them would be the largest part of what a settlement writes.
_NAMED_ENTRIES = """CREATE UNIQUE INDEX penstock_entry_idem ON penstock_entry (account, idem)
    WHERE idem <> ''"""
# In SQLite, REPLACE deletes rows without firing a trigger of deletes. So an insert is refused that
# would replace an entry: by its number, which is also the row's own now, or by its name.
_ENTRY_COLUMNS = "account, meter, period, kind, amount, held, source, idem, at, who, note, seq"
_SQLITE_ENTRIES = [
    "DROP INDEX penstock_entry_of_account",
    *(f"DROP TRIGGER penstock_entry_{verb}" for verb in ("update", "delete")),
    "ALTER TABLE penstock_entry RENAME TO penstock_entry_before",
    """CREATE TABLE penstock_entry (
    account TEXT NOT NULL REFERENCES penstock_account,
    meter TEXT NOT NULL,
    period BIGINT NOT NULL,
    kind TEXT NOT NULL,
    amount BIGINT NOT NULL,
    held BIGINT NOT NULL,
    source TEXT NOT NULL,
    idem TEXT NOT NULL,
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    note TEXT NOT NULL,
    seq INTEGER PRIMARY KEY
)""",
    f"INSERT INTO penstock_entry ({_ENTRY_COLUMNS})"
    f" SELECT {_ENTRY_COLUMNS} FROM penstock_entry_before ORDER BY seq",
    "DROP TABLE penstock_entry_before",
    "CREATE INDEX penstock_entry_of_account ON penstock_entry (account)",
    _NAMED_ENTRIES,
    *_SQLITE_TRIGGERS,
    """CREATE TRIGGER penstock_entry_insert BEFORE INSERT ON penstock_entry
    WHEN NEW.seq <= (SELECT max(seq) FROM penstock_entry)
        OR NEW.idem <> '' AND EXISTS (SELECT 1 FROM penstock_entry AS t
            WHERE t.account = NEW.account AND t.idem = NEW.idem AND t.idem <> '')
    BEGIN SELECT RAISE(ABORT, 'entries of the ledger are append-only'); END""",
]

# PostgreSQL looks up the account for each entry, which takes longer than writing it. Whoever writes
# has loaded the account, and balances keep it from being deleted.
_POSTGRES_ENTRIES = [
    "ALTER TABLE penstock_entry DROP CONSTRAINT penstock_entry_account_fkey",
    "ALTER TABLE penstock_entry DROP CONSTRAINT penstock_entry_account_idem_key",
    _NAMED_ENTRIES,
]

# From version N to N + 1.
SQLITE: list[list[str]] = [
    [_VERSION_TABLE, *_statements(_TABLES), *_SQLITE_TRIGGERS],
    [_HOLDS_ADD_UP, *_SQLITE_ENTRIES],
]
POSTGRES: list[list[str]] = [
    [_VERSION_TABLE, *_statements(_TABLES), *_POSTGRES_TRIGGERS, *_POSTGRES_STORAGE],
    [_HOLDS_ADD_UP, *_POSTGRES_ENTRIES],
]
assert len(SQLITE) == len(POSTGRES) == VERSION


def missing(found: int | None, migrations: list[list[str]], where: str) -> list[str]:
    """The statements that bring a database of version ``found`` up to date.

    `LedgerVersion` if it is of a later version than this Penstock knows.
    """
    version = found or 0
    if not 0 <= version <= len(migrations):
        raise LedgerVersion(
            f"the ledger in {where} is of version {version}, and this Penstock knows up to"
            f" {len(migrations)}: upgrade Penstock; the ledger was left untouched"
        )
    statements = [statement for step in migrations[version:] for statement in step]
    if statements:
        statements += [
            "DELETE FROM penstock_schema",
            f"INSERT INTO penstock_schema VALUES ({len(migrations)})",
        ]
    return statements
