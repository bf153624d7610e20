"""Functions: runs whose every turn is known beforehand, so that the loop which runs agents runs them too."""
