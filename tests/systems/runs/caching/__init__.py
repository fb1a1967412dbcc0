"""Files that jobs keep for later ones."""
