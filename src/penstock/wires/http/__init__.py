"""HTTP/1.1: checks as JSON, Envoy's /json, forward auth, health."""
