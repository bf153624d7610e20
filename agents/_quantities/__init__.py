"""Arithmetic with units, for the agent `converter`."""
