"""Middleware for WSGI: Flask, Bottle, Pyramid, or an application of your own."""

from penstock.integrations.wsgi.breaker import BreakerWSGI
from penstock.integrations.wsgi.concurrency import ConcurrencyWSGI
from penstock.integrations.wsgi.limit import PenstockWSGI

__all__ = ["BreakerWSGI", "ConcurrencyWSGI", "PenstockWSGI"]
