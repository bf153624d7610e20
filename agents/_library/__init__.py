"""Twelve short texts about running services, and a search through them, for the agent `researcher`."""
