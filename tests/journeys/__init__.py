"""Whole journeys: real workers in processes of their own, real signals, real databases."""
