"""`interlock worker start MODULE`: from what somebody typed to their tasks, or to one clear sentence."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.errors import CannotLoad, InvalidArguments
from interlock.worker.tasks import DEFAULT, load_tasks

TASKS = """
from interlock.worker.tasks import task

@task
def pay(amount: int) -> int:
    return amount
"""
REGISTRIES = """
from interlock.worker.tasks import Registry

own, empty, number = Registry(), Registry(), 3

@own.task
def pay(amount: int) -> int:
    return amount
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project in the current directory; whatever is imported and registered is forgotten after it."""
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(DEFAULT, "_tasks", {})
    yield tmp_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_module_of_the_current_directory_is_loaded(folder: Path) -> None:
    write(folder, {"billing.py": TASKS})
    assert load_tasks("billing").names() == ("billing.pay",)
    assert str(folder) in sys.path


def test_a_module_in_a_package_is_loaded(folder: Path) -> None:
    write(folder, {"shop/__init__.py": "", "shop/billing.py": TASKS})
    assert load_tasks("shop.billing").names() == ("shop.billing.pay",)


def test_a_file_is_loaded_as_the_module_that_it_is(folder: Path) -> None:
    write(folder, {"work/billing.py": TASKS, "my-tasks.py": TASKS})
    assert load_tasks("work/billing.py").names() == ("billing.pay",)
    assert load_tasks(str(folder / "my-tasks.py")).names() == ("billing.pay", "my-tasks.pay")


def test_a_file_in_a_package_is_loaded_as_a_part_of_it(folder: Path) -> None:
    package = {
        "__init__.py": "",
        "inner/__init__.py": TASKS,
        "inner/billing.py": f"from . import pay\n{TASKS}",
    }
    write(folder, {f"src/shop/{name}": text for name, text in package.items()})
    assert load_tasks("src/shop/inner/billing.py").names() == ("shop.inner.billing.pay", "shop.inner.pay")
    assert load_tasks("src/shop/inner/__init__.py") is DEFAULT


def test_a_module_that_was_loaded_before_has_its_tasks_still(folder: Path) -> None:
    write(folder, {"billing.py": TASKS, "front.py": "import billing", "other.py": "from billing import pay"})
    assert load_tasks("front") is load_tasks("billing") is load_tasks("other") is DEFAULT


def test_a_module_that_was_changed_and_reloaded_has_its_new_tasks(folder: Path) -> None:
    write(folder, {"billing.py": TASKS})
    old = load_tasks("billing").get("billing.pay")
    write(folder, {"billing.py": "# changed\n" * 3 + TASKS})
    importlib.reload(sys.modules["billing"])
    assert load_tasks("billing").get("billing.pay") is not old


def test_a_registry_of_its_own_is_loaded_by_its_name(folder: Path) -> None:
    write(folder, {"billing.py": REGISTRIES})
    own = load_tasks("billing:own")
    assert own.names() == ("billing.pay",)
    assert load_tasks("billing.py:own") is own
    assert len(DEFAULT) == 0


@pytest.mark.parametrize(
    ("spec", "why", "todo"),
    [
        ("biling", "there is no module biling, did you mean billing", "Modules are looked up in "),
        ("nowhere.at.all", "there is no module nowhere", "Modules are looked up in "),
        ("shop.nothing", "there is no module shop.nothing", "Modules are looked up in "),
        ("billing.pay", "there is no module billing.pay", "Modules are looked up in "),
        ("gone.py", "there is no such file", "Files are looked up from "),
        ("folder/", "there is no such file", "Files are looked up from "),
        (":own", "no module is named", "Give shop.tasks, or shop/tasks.py."),
        ("silent", "there are no tasks in it", "Decorate a function in it with @task."),
        ("registries", "there are no tasks in it", "Start it as registries:own."),
        ("registries:empty", "there are no tasks in it", "Start it as registries:own."),
        ("registries:number", "number should be a Registry and is of type int", "Use one of: own, empty."),
        ("registries:owm", "owm should be a Registry and is not there", "Use one of: own, empty."),
        ("billing:own", "own should be a Registry and is not there", "Leave :own out, to use what @task"),
        ("json.py", "a module json is loaded already", "Rename the file."),
    ],
)
def test_a_task_module_that_cannot_be_loaded_is_refused_with_the_reason_and_a_remedy(
    folder: Path, spec: str, why: str, todo: str
) -> None:
    write(folder, {"billing.py": TASKS, "silent.py": "x = 1", "registries.py": REGISTRIES, "json.py": TASKS})
    write(folder, {"shop/__init__.py": "", "folder/a.txt": ""})
    with pytest.raises(CannotLoad) as caught:
        load_tasks(spec)
    assert caught.value.sentence.startswith("Cannot load ")
    assert f": {why}" in caught.value.sentence
    assert caught.value.todo.startswith(todo)


@pytest.mark.parametrize(
    ("source", "why", "line"),
    [
        ("\n\n1 / 0", "it raises ZeroDivisionError: division by zero", "broken.py line 3"),
        ("x = (", "it raises SyntaxError: '(' was never closed", "broken.py line 1"),
        ("import not_installed", "it raises ModuleNotFoundError: No module named 'not_installed'", "line 1"),
        ("raise SystemExit(3)", "it raises SystemExit: 3", "broken.py line 1"),
        ("x = 1\nimport json\njson.loads('{')", "it raises JSONDecodeError", "broken.py line 3"),
        ("import helper", "it raises KeyError: 'a'", "helper.py line 2"),
        ("raise ValueError('two\\nlines')", "it raises ValueError: two lines", "broken.py line 1"),
    ],
)
def test_a_module_that_raises_is_named_with_the_line(folder: Path, source: str, why: str, line: str) -> None:
    write(folder, {"broken.py": source, "helper.py": "x = {}\nx['a']"})
    with pytest.raises(CannotLoad) as caught:
        load_tasks("broken")
    assert caught.value.sentence.startswith(f"Cannot load broken: {why}")
    assert line in caught.value.sentence
    assert "\n" not in caught.value.sentence


def test_an_error_of_ours_passes_as_it_is(folder: Path) -> None:
    write(folder, {"broken.py": TASKS.replace("@task", "@task(que='a')")})
    with pytest.raises(InvalidArguments, match="Did you mean queue"):
        load_tasks("broken")


def test_a_task_with_an_undefined_argument_type_is_refused_when_its_module_is_loaded(folder: Path) -> None:
    write(folder, {"late.py": "from __future__ import annotations\n" + TASKS.replace(": int", ": Missing")})
    with pytest.raises(CannotLoad, match=r"task of late\.pay: the type Missing of amount is not found"):
        load_tasks("late")


def test_a_type_that_is_declared_below_the_task_is_found_when_the_worker_starts(folder: Path) -> None:
    later = "from __future__ import annotations\n" + TASKS.replace(": int", ": Money") + "\nMoney = int\n"
    write(folder, {"late.py": later})
    assert bytes(load_tasks("late").get("late.pay").spec(3).input) == b'{"amount":3}'


def test_a_program_and_a_worker_call_the_same_task_by_the_same_name(folder: Path) -> None:
    write(folder, {"billing.py": f"{TASKS}\nif __name__ == '__main__':\n    print(pay.spec(3).task)"})
    submitted = subprocess.run(
        [sys.executable, "billing.py"], capture_output=True, text=True, check=True, timeout=60
    )
    assert submitted.stdout.strip() in load_tasks("billing.py")
