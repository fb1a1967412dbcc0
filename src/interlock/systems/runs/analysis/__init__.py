"""Why jobs of a run have failed, as far as that can be told; it informs people and decides nothing.

Reading order:

    signs        what an exit code, a signal, an exception or a line of output says about a failure
    finding      pure: signs and history weighed into a class, a confidence and the evidence
    history      how a job of a workflow has ended on the latest commits, and whether it is flaky
    analysing    what ties them to runs: outcomes are learnt once, findings are made when asked for
"""
