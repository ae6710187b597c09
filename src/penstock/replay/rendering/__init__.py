"""Reports for people: ``terminal.py`` (with rich where it is installed), ``html.py`` with its plots
from ``svg.py``, and ``tables.py`` for CSV. They read `Report` and `Recommendation`, nothing else.
"""
