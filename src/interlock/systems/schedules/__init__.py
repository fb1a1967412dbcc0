"""Schedules: jobs that are submitted by themselves, each fire time once.

fires       the record of a schedule, and what becomes of it when it is due. Pure
schedules   what people and programs do with schedules, and the sweep that fires them
"""
