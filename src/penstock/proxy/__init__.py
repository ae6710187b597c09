"""The reverse proxy: rate limits in front of one server, if there is no gateway.

A client's bytes (`client.py`) become a request (`reader.py`, `request.py`); an `Exchange` checks it
against the rules, takes a connection to the server from the pool (`pool.py`, `upstream.py`) and
passes both bodies on as they arrive (`response.py`). `base.py` holds what all connections share,
and `server.py` accepts them. May import `integrations/` and `wires/http`.
"""
