"""Schedules: each fire time once, whoever looks, and by the policies that were chosen."""
