"""Wires: from the bytes of a connection to the service, and back.

``http/`` is HTTP/1.1 (checks as JSON, forward auth), ``grpc/`` is gRPC over nghttp2 or grpcio. A
wire knows the service, and nothing of processes, workers or configuration.
"""
