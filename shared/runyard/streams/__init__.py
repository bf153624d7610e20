"""Frames in Redis: one script that writes them, paged reads, live batches by publish and subscribe."""
