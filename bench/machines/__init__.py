"""The table of `bench.table` in each library, at the best settings that its own documents name.

Each module has one class that fulfils `contender.Contender`.
"""
