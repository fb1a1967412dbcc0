"""Commands and their child processes: captured, reliably ended, with secrets masked.

Workers and agents run code of others; the means for that are here.
"""
