"""What a run costs beside its jobs.

driving   a house with runs in it, and one crew that does nothing but claim and complete
sizes     the same number of jobs in many small runs and in one large one
shapes    layers of jobs, and many runs at once, each against the same jobs on their own
"""
