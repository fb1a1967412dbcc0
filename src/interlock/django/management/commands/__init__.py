"""One module for each command of `manage.py`, as Django wants it."""
