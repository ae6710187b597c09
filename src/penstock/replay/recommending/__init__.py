"""Recommending a limit from the arrivals of each key.

``arrivals.py`` has the arithmetic over all keys, ``sampling.py`` keeps arrivals in bounded memory,
``needs.py`` says what keys need and which look automated, ``choosing.py`` has the choice (plateau,
else quantile with headroom), ``recommendation.py`` the result, ``plotting.py`` the numbers behind
its plots. ``recommend.py`` puts them together.
"""
