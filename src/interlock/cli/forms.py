"""Options of commands that print records: `-o table|wide|json|jsonl|yaml|template=TEXT` and `--columns`.

The command class declares and reads them, so that no command has to; `output` obeys what was chosen. Nothing
here takes time to import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

KINDS = ("table", "wide", "json", "jsonl", "yaml", "template=TEXT")
_TEMPLATE = "template="
_FORM, _COLUMNS = "output_form", "output_columns"
_HELP = (
    f"Output format: {', '.join(KINDS[:-1])} or {KINDS[-1]} with the names of JSON fields in braces "
    "(default: table on a terminal, else lines with tabs)."
)
_COLUMNS_HELP = "Print only these columns, separated by commas; their names are in the head of the table."


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The form of the output that was chosen."""

    kind: str = "table"
    template: str = ""
    columns: tuple[str, ...] = ()

    @property
    def is_data(self) -> bool:
        """Whether the output is the JSON of the command, in one form or another."""
        return self.kind in ("json", "jsonl", "yaml", "template")


chosen = OutputForm()
"""The form of this command."""


def reset() -> None:
    """Forget what an earlier command of this process has chosen."""
    global chosen  # noqa: PLW0603 - one command runs at a time
    chosen = OutputForm()


class RecordsCommand(TyperCommand):
    """A command that prints records, in the form that the user chooses."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            _option([_FORM, "--output", "-o"], "FORMAT", _HELP),
            _option([_COLUMNS, "--columns"], "NAMES", _COLUMNS_HELP),
        ]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the form. All forms of data are made from what `--json` prints."""
        global chosen  # noqa: PLW0603 - see `chosen`
        rest: list[str] = super().parse_args(ctx, args)
        kind, template = _read(ctx.params.pop(_FORM) or "table")
        columns = tuple(name for name in (ctx.params.pop(_COLUMNS) or "").split(",") if name)
        chosen = OutputForm(kind, template, columns)
        if chosen.is_data:
            ctx.params["as_json"] = True
        return rest


def _option(names: list[str], metavar: str, text: str) -> TyperOption:
    return TyperOption(
        param_decls=names, metavar=metavar, help=text, type=str, default=None, show_default=False
    )


def _read(text: str) -> tuple[str, str]:
    if text.startswith(_TEMPLATE):
        return "template", text.removeprefix(_TEMPLATE)
    if text not in KINDS:
        raise typer.BadParameter(f"{text!r} is not a format. Choose from {', '.join(KINDS)}.")
    return text, ""
