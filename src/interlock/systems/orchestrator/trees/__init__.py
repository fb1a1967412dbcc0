"""Jobs that submit jobs: who may run at the same time, who waits for whom, and what becomes of a tree.

body        the record of a tree: who is inside, who waits for children, whose children are held back
slots       who is let in and who is held back, by the quotas; pure
notifications  what a job tells its tree, in the commit that makes it true
submission  jobs become children, in one commit with their parents and their trees
reconciler  hears the words: lets in, wakes parents, stops subtrees
children    children under a name, so that a handler that runs again finds them again
views       a tree as it is shown
"""
