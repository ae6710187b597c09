"""Rules: which limits apply to a request. Read from YAML, matched by descriptors."""
