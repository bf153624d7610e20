"""Frames in Redis: one script that writes them, paged reads, and live batches by publish and subscribe."""
