"""Where a ledger is kept: SQLite or PostgreSQL.

`tables.py` is what both have in common: the tables, and their rows as tuples. `migrations.py`
creates and changes them. `base.py` is what a database does for a ledger: load rows for an
operation, save what it has changed, both in one transaction. `sqlite.py` and `postgres.py` do
it. `url.py` picks one. What the rows mean is decided in the modules above, once for both.
"""
