"""The kernel: tables, what must be true of them, and what they decide."""
