"""The nouns of the command line: one module for each, with its commands, columns, filters and actions.

A noun that would exceed 600 lines keeps its commands in `<nouns>`, its search, columns and actions in
`<noun>_views`, and a long verb in `<noun>_<verb>`.
"""
