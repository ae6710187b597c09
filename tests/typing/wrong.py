"""What users get wrong: both type checkers report every line that says ``wrong``, and no other."""

from __future__ import annotations

import flask
from fastapi import FastAPI

from penstock import AsyncLimiter, Limiter
from penstock.integrations import by_api_key, by_ip
from penstock.integrations.asgi import ConcurrencyMiddleware, PenstockMiddleware
from penstock.integrations.django import limit as django_limit
from penstock.integrations.fastapi import document_limits, limit
from penstock.integrations.flask import Penstock
from penstock.integrations.flask import limit as flask_limit
from penstock.integrations.grpc import RateLimitInterceptor, aio
from penstock.integrations.wsgi import ConcurrencyWSGI, PenstockWSGI

app, site = FastAPI(), flask.Flask("shop")

PenstockMiddleware(app, limit="100/minute", key_func=by_ip)  # wrong
PenstockMiddleware(app, limit=100)  # wrong
PenstockMiddleware(app, limit="100/minute", key="ip")  # wrong
PenstockMiddleware(app, limit="100/minute", key=by_api_key)  # wrong
PenstockMiddleware(app, limit="100/minute", hops="1")  # wrong
PenstockMiddleware(app, limit="100/minute", enabled="no")  # wrong
ConcurrencyMiddleware(app, limit=100, wait=5)  # wrong
PenstockWSGI(site.wsgi_app, limits="100/minute")  # wrong
ConcurrencyWSGI(site.wsgi_app, 10, time_out=5)  # wrong
limit("10/second", key_func=by_ip)  # wrong
limit("10/second", fallback="stale")  # wrong
limit("10/second", override="yes")  # wrong
limit("10/second", from_env=True)  # wrong
limit({"10/second": by_ip})  # wrong
document_limits(site)  # wrong
Penstock(site, "100/minute", exempted=["/health"])  # wrong
Penstock(site).limit("10/second", key_func=by_ip)  # wrong
Penstock(site, "100/minute", override=True)  # wrong
flask_limit("10/second", key_func=by_ip)  # wrong
flask_limit("10/second", from_env=True)  # wrong
flask_limit({by_ip: 10})  # wrong
django_limit("10/second", rate="5/minute")  # wrong
RateLimitInterceptor("100/second", key_func=by_ip)  # wrong
aio.RateLimitInterceptor("100/second", cost="2")  # wrong
Limiter("5/minute").acquire("k")  # wrong
AsyncLimiter("5/minute").consume("k")  # wrong
Limiter("5/minute").limit("5/minute", key_func=by_ip)  # wrong
Limiter("5/minute", enabled="no")  # wrong
