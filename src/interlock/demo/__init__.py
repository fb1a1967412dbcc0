"""A small photo studio: the work that `interlock demo` has done, and an example to copy from."""
