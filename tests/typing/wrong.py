"""What users get wrong: both type checkers report every line that says ``wrong``, and no other."""

from __future__ import annotations

import flask
from fastapi import FastAPI

from penstock.integrations import by_ip
from penstock.integrations.asgi import ConcurrencyMiddleware, PenstockMiddleware
from penstock.integrations.django import limit as django_limit
from penstock.integrations.fastapi import limit
from penstock.integrations.flask import Penstock
from penstock.integrations.flask import limit as flask_limit
from penstock.integrations.grpc import RateLimitInterceptor, aio
from penstock.integrations.wsgi import ConcurrencyWSGI, PenstockWSGI

app, site = FastAPI(), flask.Flask("shop")

PenstockMiddleware(app, limit="100/minute", key_func=by_ip)  # wrong
PenstockMiddleware(app, limit=100)  # wrong
PenstockMiddleware(app, limit="100/minute", key="ip")  # wrong
PenstockMiddleware(app, limit="100/minute", hops="1")  # wrong
ConcurrencyMiddleware(app, limit=100, wait=5)  # wrong
PenstockWSGI(site.wsgi_app, limits="100/minute")  # wrong
ConcurrencyWSGI(site.wsgi_app, 10, time_out=5)  # wrong
limit("10/second", key_func=by_ip)  # wrong
limit("10/second", fallback=lambda: None)  # wrong
Penstock(site, "100/minute", exempted=["/health"])  # wrong
Penstock(site).limit("10/second", key_func=by_ip)  # wrong
flask_limit("10/second", key_func=by_ip)  # wrong
django_limit("10/second", rate="5/minute")  # wrong
RateLimitInterceptor("100/second", key_func=by_ip)  # wrong
aio.RateLimitInterceptor("100/second", cost="2")  # wrong
