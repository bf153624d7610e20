"""Model providers: one interface for the loop (`model.py`), one module for each model API."""
