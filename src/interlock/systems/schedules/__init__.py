"""Schedules: jobs submitted at certain times, each fire time once.

settings    how often a waiting fire is checked
fires       the record of a schedule, and the decision when it is due. Pure
schedules   the operations on schedules, and the sweep that fires them
"""
