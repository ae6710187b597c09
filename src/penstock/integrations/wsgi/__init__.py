"""Middleware for WSGI: Flask, Bottle, Pyramid, or an application of your own."""

from penstock.integrations.wsgi.limit import PenstockWSGI

__all__ = ["PenstockWSGI"]
