"""Functions: runs whose turns are all known beforehand, so that the loop which runs agents can run them too."""
