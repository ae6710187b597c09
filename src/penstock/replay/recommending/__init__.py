"""Recommending a limit from the arrivals of each key.

``arrivals.py`` has the arithmetic over all keys, ``frontier.py`` the exact trade of rate against
burst for one key, ``choosing.py`` the choice (plateau, else quantile with headroom),
``behaviour.py`` the reasons why a key looks automated or like many people, ``recommend.py`` puts
them together.
"""
