"""``penstock admin``: what an operator asks and changes.

Through the admin API of an instance (``--admin``), or, without any instance, through the store that
a fleet shares (``--control``).

- `verbs.py`: the verbs and their arguments
- `questions.py`, `changing.py`, `decisions.py`: what each verb asks, and what it prints
- `asking.py`: the API, tables and texts
- `fleet.py`: answers for ``--control``, from the store
"""

from penstock.cli.admin.verbs import register

__all__ = ["register"]
