"""A FastAPI application with limits for the application, a route, and failed log-ins.

Serve it with ``uvicorn examples.fastapi_app:app``. Run directly, it sends requests to itself.
"""

from __future__ import annotations

from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient

from penstock.integrations import Response, by_ip
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.fastapi import limit


def failed(response: Response) -> bool:
    return response.status == 401


app = FastAPI()
app.add_middleware(PenstockMiddleware, limit="100/minute", name="all", exempt=["/health"])


@app.get("/search", dependencies=[Depends(limit("3/second", key=by_ip))])
async def search(q: str) -> list[str]:
    return [f"{q} {number}" for number in range(3)]


@app.post("/log-in", dependencies=[Depends(limit("3/minute lockout 15m", count_when=failed))])
async def log_in(password: str) -> str:
    if password != "open sesame":
        raise HTTPException(401, "wrong password")
    return "welcome"


@app.get("/health")
async def health() -> str:
    return "fine"


if __name__ == "__main__":
    client = TestClient(app, client=("203.0.113.7", 50000))
    for _ in range(4):
        answer = client.get("/search", params={"q": "penstock"})
        print(answer.status_code, answer.headers["RateLimit"], answer.text)
    for word in ["open sesame", "guess", "guess", "guess", "open sesame"]:
        answer = client.post("/log-in", params={"password": word})
        wait = answer.headers.get("Retry-After", "-")
        print(answer.status_code, f"{word!r:14}", "retry after", wait)
    print(client.get("/health").status_code, "RateLimit" in client.get("/health").headers)
