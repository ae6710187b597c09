"""The rate limit service: a core that knows no wire, the wires, and what puts them together."""
