"""Command `interlock verify …`: hand over to the distribution interlock-verification.

Model checker, mutants, worlds and chaos are not in the wheel that users install. Their distribution
declares its command as an entry point of the group `interlock.commands`. The entry points are read when
the command is called and not before: that reads the metadata of every installed package, and `--help`
has to be quick. The help texts of its commands are a file of the distribution (`help_pages`).
"""

from __future__ import annotations

import typer

from interlock.errors import CannotLoad

GROUP = "interlock.commands"
NAME = "verify"
DISTRIBUTION = "interlock-verification"


def register(app: typer.Typer) -> None:
    """Add the command; its options and its help are those of the distribution."""
    everything = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command(NAME, add_help_option=False, context_settings=everything)(verify)


def verify(context: typer.Context) -> None:
    """Explore, mutate and simulate the lifecycles."""
    group = typer.main.get_command(commands())
    with group.make_context(NAME, context.args, parent=context.parent) as inner:
        group.invoke(inner)


def commands() -> typer.Typer:
    """Return the commands of the distribution."""
    from importlib.metadata import entry_points, version

    found = next(iter(entry_points(group=GROUP, name=NAME)), None)
    if found is None:
        raise CannotLoad(
            f"`interlock {NAME}` is in a distribution that is not installed: {DISTRIBUTION}.",
            todo="Install it from a clone of the repository: pip install ./verification.",
            facts={"missing": [DISTRIBUTION]},
        )
    try:
        commands = found.load()
    except (ImportError, AttributeError) as error:
        there = found.dist.version if found.dist is not None else "of an unknown version"
        raise CannotLoad(
            f"{DISTRIBUTION} {there} cannot be used with interlock {version('interlock')}: {error}.",
            todo="Install both from the same clone of the repository: pip install . ./verification.",
            facts={"entry_point": found.value},
        ) from None
    if not isinstance(commands, typer.Typer):
        raise CannotLoad(
            f"{found.value} is not a group of commands.",
            todo=f"Make the entry point {NAME!r} of {GROUP!r} name a typer.Typer.",
            facts={"entry_point": found.value},
        )
    return commands
