"""Options of commands that print records: `-o FORMAT`, `--columns`, `--sort`, `--reverse` and `--no-pager`.

The command class declares and reads them, so that no command has to; `output` obeys them. Nothing
here takes time to import.

Why: decision 0425.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

KINDS = ("table", "wide", "json", "jsonl", "yaml", "template=TEXT")
_TEMPLATE = "template="
_FORM, _COLUMNS, _SORT = "output_form", "output_columns", "output_sort"
_REVERSE, _NO_PAGER = "output_reverse", "output_no_pager"
_SORTS = "interlock.sort is incomplete"
_HELP = (
    f"Output format: {', '.join(KINDS[:-1])} or {KINDS[-1]} with the names of JSON fields in braces "
    "(default: table on a terminal, else lines with tabs)."
)
_COLUMNS_HELP = "Print only these columns, separated by commas; their names are in the head of the table."
_SORT_HELP = "Sort the printed rows by these columns, separated by commas; -COLUMN descending."


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The form of the output that was chosen."""

    kind: str = "table"
    template: str = ""
    columns: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    """Columns to sort the printed rows by, the most important first; "-" before a name means descending."""
    reverse: bool = False
    pager: bool = False
    """Whether long tables on a terminal go through a pager."""

    @property
    def is_sorted(self) -> bool:
        """Whether the printed rows are in another order than the store's."""
        return bool(self.sort) or self.reverse

    @property
    def is_data(self) -> bool:
        """Whether the output is the JSON of the command, in one form or another."""
        return self.kind in ("json", "jsonl", "yaml", "template")


chosen: OutputForm = OutputForm()
"""The form of this command."""


def reset() -> None:
    """Forget the choices of a command of this process."""
    global chosen  # noqa: PLW0603 - one command runs at a time
    chosen = OutputForm()


class RecordsCommand(TyperCommand):
    """A command that prints records, in the form that the user chooses."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params: list[Any]
        self.params += [
            _option([_FORM, "--output", "-o"], "FORMAT", _HELP, _kinds),
            _option([_COLUMNS, "--columns"], "NAMES", _COLUMNS_HELP, _columns),
            _option([_SORT, "--sort"], "COLUMNS", _SORT_HELP, _columns),
            _flag([_REVERSE, "--reverse"], "Reverse the order of the printed rows."),
            _flag([_NO_PAGER, "--no-pager"], "Do not show long tables in a pager."),
        ]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the form. All forms of data are made from what `--json` prints."""
        global chosen  # noqa: PLW0603 - see `chosen`
        ctx.meta[_SORTS] = args[-1:] == ["--sort"]  # as where a shell asks for its value
        rest: list[str] = super().parse_args(ctx, args)
        kind, template = _read(ctx.params.pop(_FORM) or "table")
        columns, sort = _names(ctx.params.pop(_COLUMNS)), _names(ctx.params.pop(_SORT))
        reverse, pager = ctx.params.pop(_REVERSE), not ctx.params.pop(_NO_PAGER)
        form = OutputForm(kind, template, columns, sort, reverse, pager)
        if form.is_sorted and (form.is_data or ctx.params.get("as_json")):
            raise typer.BadParameter(
                "--sort and --reverse order the rows of a table; JSON keeps the order of the store. "
                "Leave them out, or sort the JSON, for example with jq."
            )
        if form.is_data:
            ctx.params["as_json"] = True
        chosen = form
        ctx.call_on_close(reset)
        return rest

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offer options and, after --sort, columns.

        After a dash, these are columns to sort by in descending order.
        """
        if is_sorting(ctx) and not incomplete.startswith("--"):
            from interlock.cli import completion

            return completion.items((each, "") for each in completion.column_names(ctx, incomplete))
        offered: list[Any] = super().shell_complete(ctx, incomplete)
        return offered


def is_sorting(ctx: Any) -> bool:
    """Return whether the next word of a line is the value of --sort."""
    return bool(ctx.meta.get(_SORTS))


def _kinds(_: Any, __: list[str], incomplete: str) -> list[str]:
    kinds = (*KINDS[:-1], _TEMPLATE)
    return [each for each in kinds if each.startswith(incomplete)]


def _columns(ctx: Any, _: list[str], incomplete: str) -> list[str]:
    from interlock.cli import completion  # it is imported before this module, and needed only here

    return completion.column_names(ctx, incomplete)


def _option(names: list[str], metavar: str, text: str, offers: Callable[..., list[str]]) -> TyperOption:
    return TyperOption(
        param_decls=names,
        metavar=metavar,
        help=text,
        type=str,
        default=None,
        show_default=False,
        autocompletion=offers,
    )


def _flag(names: list[str], text: str) -> TyperOption:
    return TyperOption(param_decls=names, help=text, is_flag=True, default=False, show_default=False)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name for name in (text or "").split(",") if name)


def _read(text: str) -> tuple[str, str]:
    if text.startswith(_TEMPLATE):
        return "template", text.removeprefix(_TEMPLATE)
    if text not in KINDS:
        raise typer.BadParameter(f"{text!r} is not a format. Choose from {', '.join(KINDS)}.")
    return text, ""
