"""Telling the outcome of a run to whoever wants to know.

port.py   what every reporter offers
log.py    the reporter that is always there
"""
