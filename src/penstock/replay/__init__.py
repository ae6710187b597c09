"""Replay: what limits would have done to the requests of a log, and which limit fits them.

::

    files ── reading ── Block ── Block ── deciding ── Tallies ── Report ── rendering
             (columns)                    (rules)        └────── recommending

``reading`` scans lines of a log into columns, in the order of time. ``deciding`` matches each
distinct request once, and decides on every one by the algorithms themselves, on a clock that the
log sets. ``simulate.py`` makes a `Report` of it. ``recommending`` finds limits from the arrivals
of each key. ``rendering`` writes reports for terminals and browsers. ``exporting`` translates
rules for proxies and firewalls.

May import the rules, gates, stores and `integrations.deciding`, never the service.
"""

from penstock.replay.exporting.export import Export, export, keys_of
from penstock.replay.exporting.items import ExportError
from penstock.replay.reading.formats import LogError
from penstock.replay.reading.logs import read_log
from penstock.replay.reading.requests import Requests
from penstock.replay.recommending.recommend import recommend
from penstock.replay.recommending.recommendation import Recommendation
from penstock.replay.report import Report, RuleReport
from penstock.replay.simulate import simulate

__all__ = [
    "Export",
    "ExportError",
    "LogError",
    "Recommendation",
    "Report",
    "Requests",
    "RuleReport",
    "export",
    "keys_of",
    "read_log",
    "recommend",
    "simulate",
]
