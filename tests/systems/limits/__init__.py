"""Limits: slots of keys, whoever holds them and whoever waits."""
