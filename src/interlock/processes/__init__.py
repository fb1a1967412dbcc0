"""Commands and whatever they start: heard, ended for certain, and their secrets kept out of what is said.

Both workers and agents run what others have written; what they need for that is here.
"""
