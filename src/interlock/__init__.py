"""Interlock: a work orchestrator in which every lifecycle is a declared state machine."""
