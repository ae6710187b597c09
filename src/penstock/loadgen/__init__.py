"""The load generator: drives a rate limit service, and measures what comes back."""
