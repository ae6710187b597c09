"""gRPC: ``h2/`` is our own server over nghttp2, `grpcio.py` the one over grpcio.

Both serve the same table of methods (`methods.py`): Envoy's rate limit service, gRPC's health
checks and reflection. Bidirectional streams, for Envoy's quotas, are in ``h2/bidi.py`` and in
`grpcio_bidi.py`.
"""
