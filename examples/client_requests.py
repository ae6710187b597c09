"""requests with a local limit, and retries of refused calls.

The server below refuses every third call and says when to retry.

Run it: python examples/client_requests.py   (needs requests)
"""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import requests

from penstock.client import PacedAdapter, Retries


class Api(BaseHTTPRequestHandler):
    calls = 0

    def do_GET(self) -> None:
        Api.calls += 1
        refused = Api.calls % 3 == 0
        body = b"later" if refused else b"hello"
        self.send_response(429 if refused else 200)
        if refused:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = HTTPServer(("127.0.0.1", 0), Api)
threading.Thread(target=server.serve_forever).start()
try:
    with requests.Session() as session:
        session.mount("http://", PacedAdapter(limit="10/second burst 1", retries=Retries(3)))
        began = time.monotonic()
        for number in range(1, 5):
            response = session.get(f"http://127.0.0.1:{server.server_port}")
            print(
                f"call {number}: {response.text} after {time.monotonic() - began:.1f} s,"
                f" {response.penstock.count} tries"
            )
finally:
    server.shutdown()
    server.server_close()
