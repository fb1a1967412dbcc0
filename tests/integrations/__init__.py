"""Interlock beside the frameworks that people use."""
