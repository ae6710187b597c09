"""The reverse proxy: rate limits in front of a server, for those who have no gateway."""
