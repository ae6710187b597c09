"""The store that a fleet shares: Redis or Valkey."""
