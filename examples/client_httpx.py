"""A polite client: five workers call an API that allows twenty calls per second.

The server below reports in its responses how many calls are left, as many APIs do. A plain
client is refused often. A client with a paced transport slows down before it is refused.

Run it: python examples/client_httpx.py   (needs httpx)
"""

import asyncio
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil

import httpx

from penstock import Limiter
from penstock.client import AsyncPacedTransport


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    limiter = Limiter("20/second")
    refused = 0

    def do_GET(self) -> None:
        decision = Api.limiter.hit("everybody")
        Api.refused += not decision
        self.send_response(200 if decision else 429)
        self.send_header("RateLimit-Policy", '"calls";q=20;w=1')
        self.send_header("RateLimit", f'"calls";r={decision.remaining};t=1')
        if not decision:
            self.send_header("Retry-After", str(ceil(decision.retry_after or 0)))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


async def work(url: str, polite: bool) -> int:
    """Makes twenty calls in sequence, and returns how many of them succeeded."""
    plain = httpx.AsyncHTTPTransport()
    transport = AsyncPacedTransport(transport=plain) if polite else plain
    async with httpx.AsyncClient(transport=transport) as client:
        return sum([(await client.get(url)).status_code == 200 for _ in range(20)])


async def compare(url: str) -> None:
    for name, polite in (("plain", False), ("polite", True)):
        Api.limiter, Api.refused = Limiter("20/second"), 0
        began = time.monotonic()
        results = await asyncio.gather(*(work(url, polite) for _ in range(5)))
        seconds = time.monotonic() - began
        print(f"{name:>6}: {sum(results):>3} of 100 results in {seconds:.1f} s,", end=" ")
        print(f"{Api.refused} refusals")


server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
threading.Thread(target=server.serve_forever).start()
try:
    asyncio.run(compare(f"http://127.0.0.1:{server.server_port}"))
finally:
    server.shutdown()
    server.server_close()
