"""Wires: translate between the bytes of a connection and the service.

``http/`` is HTTP/1.1 (checks as JSON, forward auth), ``grpc/`` is gRPC over nghttp2 or grpcio;
`tls.py` is for both. A wire may import the service, but nothing about processes, workers or
configuration.
"""
