"""How long the command line takes to begin."""
