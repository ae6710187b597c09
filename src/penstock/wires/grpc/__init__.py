"""gRPC: ``h2/`` is our own server over nghttp2, `grpcio.py` the one over grpcio.

Both serve the same table of methods (`methods.py`): Envoy's rate limit service, gRPC's health
checks and reflection.
"""
