"""The ways in and out of the service: each turns what a peer sends into calls, and back."""
