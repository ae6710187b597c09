"""Reports for people: ``terminal.py`` (with rich where it is installed), ``html.py`` in the frame
of ``page.py`` with ``plots.py``, drawn by ``svg.py``, and ``tables.py`` for CSV. They read `Report`
and `Recommendation`, nothing else.
"""
