"""Functions: runs whose turns are known beforehand, so that the loop for agents can run them without a model."""
