"""Connects to itself inside of a network namespace; run by test_exported_nftables.py.

    unshare --net python connecting.py FILE PLAN

FILE is the configuration for nft. PLAN is JSON: pairs of seconds to wait and an address to connect
from. The output is JSON: for each the time before and after, and whether it was connected.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time

PORT = 8080
ADDRESSES = ("2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1", "192.0.2.1", "192.0.2.2")


def accept(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


def main(nft: str, file: str, plan: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in ADDRESSES:
        length = 128 if ":" in address else 32
        subprocess.run(["ip", "addr", "add", f"{address}/{length}", "dev", "lo"], check=True)
    subprocess.run([nft, "-f", file], check=True)
    subprocess.run([nft, "-f", file], check=True)  # loading it again replaces it
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        listener = socket.socket(family)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, PORT))
        listener.listen(128)
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
    out = []
    for gap, address in json.loads(plan):
        time.sleep(gap)
        before = time.time_ns()
        target = ADDRESSES[0] if ":" in address else "127.0.0.1"
        try:
            socket.create_connection((target, PORT), 60, (address, 0)).close()
            admitted = True
        except ConnectionRefusedError:
            admitted = False
        out.append((before, time.time_ns(), admitted))
    print(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:4])
