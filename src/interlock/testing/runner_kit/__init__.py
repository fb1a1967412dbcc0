"""A conformance kit for runners, in whatever language they are written.

It plays the server of [the runner protocol](docs/reference/runner-protocol.md): one that answers late,
twice, wrongly or not at all, takes leases away and asks for things to be stopped, and it judges what
the runner does about it. `http` is the line, `desk` the server behind it, `scenarios` what is played,
and `check` plays it. `interlock runner-check` is how it is called.
"""
