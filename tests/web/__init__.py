"""The dashboard as it is built, and as a real browser shows it."""
