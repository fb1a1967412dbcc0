"""From a name on the command line to a user's module.

    shop.tasks       a module; the current directory is importable, as with `python -m`
    shop/tasks.py    a file; inside a package it is imported as a part of it

Every error becomes one sentence that names the line, never a traceback.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
import traceback
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path
from types import ModuleType

from interlock.errors import CannotLoad, InterlockError
from interlock.text import nearest


def import_named(name: str) -> ModuleType:
    """Import a module by name or file; its output goes to stderr."""
    if not name:
        raise cannot_load("it", "no module is named", "Give shop.tasks, or shop/tasks.py.")
    _make_importable(Path.cwd())
    module_name = _name_of_file(Path(name)) if _is_file_name(name) else name
    try:
        with prints_to_stderr():
            module = importlib.import_module(module_name)
    except InterlockError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(name, module_name, error) from error
    if _is_file_name(name) and Path(module.__file__ or "").resolve() != Path(name).resolve():
        raise cannot_load(
            name,
            f"a module {module_name} is loaded already, from {module.__file__ or 'Python itself'}",
            "Rename the file.",
        )
    return module


def prints_to_stderr() -> AbstractContextManager[object]:
    """Redirect prints of user code to stderr.

    Stdout is for the answer of a command.
    """
    return redirect_stdout(sys.stderr)


def cannot_load(name: str, why: str, todo: str) -> CannotLoad:
    """Return the error of a module that cannot be loaded."""
    return CannotLoad(f"Cannot load {name}: {why}.", todo=todo, facts={"name": name, "cause": why})


def _is_file_name(name: str) -> bool:
    return name.endswith(".py") or "/" in name


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _name_of_file(path: Path) -> str:
    """Return the import name of a file, from its outermost package."""
    try:
        is_there = path.is_file()
    except PermissionError:
        todo = "Give it the right to read the file and to enter the folders above it."
        raise cannot_load(str(path), "the user of this process cannot reach it", todo) from None
    if not is_there:
        raise cannot_load(str(path), "there is no such file", f"Files are looked up from {Path.cwd()}.")
    path = path.resolve()
    folder, parts = path.parent, [] if path.stem == "__init__" else [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    _make_importable(folder)
    return ".".join(parts)


def _failed(name: str, module_name: str, error: BaseException) -> CannotLoad:
    if isinstance(error, ModuleNotFoundError) and _is_part(error.name, module_name):
        here = [path.stem for path in Path.cwd().iterdir() if path.suffix == ".py" or path.is_dir()]
        guess = nearest(module_name, here)
        hint = f", did you mean {guess}" if guess else ""
        todo = f"Modules are looked up in {Path.cwd()} and among the installed packages."
        return cannot_load(name, f"there is no module {error.name}{hint}", todo)
    message = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    line = _line_of(error)
    return cannot_load(
        name, f"it raises {text}{line}", "Correct the module; INTERLOCK_DEBUG=1 shows the whole traceback."
    )


def _is_part(missing: str | None, module_name: str) -> bool:
    return missing is not None and f"{module_name}.".startswith(f"{missing}.")


def _line_of(error: BaseException) -> str:
    """Return where an error was raised, in the user's code if possible."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename} line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename[:1] != "<"]
    own = [frame for frame in frames if _is_own(frame.filename)]
    last = (own or frames)[-1:]
    return "".join(f" ({frame.filename} line {frame.lineno})" for frame in last)


def _is_own(filename: str) -> bool:
    paths = sysconfig.get_paths()
    installed = (paths["stdlib"], paths["purelib"], paths["platlib"], str(Path(__file__).parent))
    return not any(Path(filename).is_relative_to(folder) for folder in installed)
