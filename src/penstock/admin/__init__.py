"""The admin API, on a port of its own: who may, what they change, and the record of it."""
