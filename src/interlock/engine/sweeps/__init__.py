"""One file for each thing that has to be looked after, again and again.

A sweep can be run by many hosts at once and twice in a row: what one has dealt with, the others
find done. Each is a plain function, so that it can also be run by hand.
"""
