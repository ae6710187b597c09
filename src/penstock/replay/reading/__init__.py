"""Reading logs: from files to columns, in the order of time.

::

    files.py ── guessing.py ── scanner ── blocks.py ── ordering.py ── logs.py
    bytes       which format   columns    some lines   by time        Requests

``formats.py`` describes lines, ``server_formats.py`` reads the languages of nginx, Apache and
Envoy, ``named_fields.py`` knows the names in JSON and CSV. The scanner is compiled
(``_scanner.pyx``) and has a twin that is not; ``threads.py`` runs several. Knows no rules.
"""
