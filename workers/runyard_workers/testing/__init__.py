"""Runs agents in one process, without a service: what authors import as `runyard.testing`.

It lives here since it needs the workers' loop. Nothing is imported by this file: pytest reads the plugin beside it in
every run.
"""
