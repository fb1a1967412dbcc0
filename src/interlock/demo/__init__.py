"""A small photo studio: the tasks of `interlock demo`, and an example to copy from."""
