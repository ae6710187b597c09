"""The load generator: sends requests to a rate limit service and measures the answers."""
