"""`interlock machine …`, asked in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from interlock.lifecycles import COUPLINGS, MACHINES
from interlock.machine import Blueprint, blueprint_of

RunCli = Callable[..., CompletedProcess[str]]

COMMANDS = ("list", "show", "draw", "check", "diff", "couplings")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_helps_with_examples(cli: RunCli, command: str) -> None:
    answer = cli("machine", command, "--help")
    assert answer.returncode == 0
    assert answer.stdout.count(f"  interlock machine {command}") >= 2


def test_the_exit_codes_are_in_the_help(cli: RunCli) -> None:
    shown = cli("machine", "--help").stdout
    assert all(line in shown for line in ("0  no faults", "1  the check found", "2  invalid usage"))


def test_list_as_json_has_one_object_for_each_machine(cli: RunCli) -> None:
    listed = json.loads(cli("machine", "list", "--json").stdout)
    assert [entry["machine"] for entry in listed] == list(MACHINES)
    job = listed[1]
    assert job["fingerprint"] == blueprint_of(MACHINES["job"]).fingerprint
    assert set(job["terminal"]) <= set(job["states"])
    assert "\n" not in job["doc"]


def test_show_as_json_is_exactly_the_blueprint(cli: RunCli) -> None:
    assert cli("machine", "show", "lease", "--json").stdout == blueprint_of(MACHINES["lease"]).to_json()


def test_show_in_a_pipe_is_one_line_for_each_thing_with_cells_between_tabs(cli: RunCli) -> None:
    lines = [line.split("\t") for line in cli("machine", "show", "doors:DOOR").stdout.splitlines()]
    assert ["state", "open", "visitor", "", "Open."] in lines
    assert ["transition", "closed", "remove", "gone", "builder", "", "Nothing lasts."] in lines
    assert sum(line[0] == "transition" for line in lines) == 4


def test_every_built_in_machine_can_be_shown_with_all_its_rows(cli: RunCli) -> None:
    for name, machine in MACHINES.items():
        lines = cli("machine", "show", name).stdout.splitlines()
        found = sum(line.startswith("transition\t") for line in lines)
        assert found == len(blueprint_of(machine).transitions)


def test_output_of_an_imported_module_is_printed_on_stderr_and_not_in_the_json(cli: RunCli) -> None:
    answer = cli("machine", "show", "doors:DOOR", "--json")
    assert json.loads(answer.stdout)["machine"] == "door"
    assert "a module that talks" in answer.stderr


@pytest.mark.parametrize(
    ("form", "beginning"),
    [("svg", "<svg"), ("mermaid", "stateDiagram-v2"), ("dot", "digraph"), ("md", "<!--"), ("json", "{")],
)
def test_draw_writes_each_format_to_stdout(cli: RunCli, form: str, beginning: str) -> None:
    answer = cli("machine", "draw", "doors:DOOR", "--format", form)
    assert answer.returncode == 0
    assert answer.stdout.startswith(beginning)


def test_draw_chooses_svg_unless_configured_otherwise(cli: RunCli) -> None:
    assert cli("machine", "draw", "doors:DOOR").stdout.startswith("<svg")


@pytest.mark.parametrize(
    ("file", "beginning"),
    [("d.svg", "<svg"), ("d", "<svg"), ("d.mmd", "stateDiagram"), ("d.gv", "digraph"), ("d.md", "<!--")],
)
def test_draw_chooses_the_format_by_the_suffix_of_the_output_file(
    cli: RunCli, folder: Path, file: str, beginning: str
) -> None:
    answer = cli("machine", "draw", "doors:DOOR", "-o", file)
    assert (answer.returncode, answer.stdout) == (0, "")
    assert f"Wrote {file}." in answer.stderr
    assert (folder / file).read_text(encoding="utf-8").startswith(beginning)


def test_draw_leaves_no_half_written_file_and_nothing_beside_the_whole_one(cli: RunCli, folder: Path) -> None:
    before = set(folder.iterdir())
    cli("machine", "draw", "job", "-o", "job.svg")
    assert {path.name for path in set(folder.iterdir()) - before} == {"job.svg"}


def test_draw_writes_to_the_target_of_a_symbolic_link_and_keeps_the_link(cli: RunCli, folder: Path) -> None:
    (folder / "link.svg").symlink_to("real.svg")
    cli("machine", "draw", "job", "-o", "link.svg")
    assert (folder / "link.svg").is_symlink()
    assert (folder / "real.svg").read_text(encoding="utf-8").startswith("<svg")


def test_draw_names_the_file_that_it_cannot_write(cli: RunCli) -> None:
    answer = cli("machine", "draw", "job", "-o", "nowhere/job.svg")
    assert answer.returncode == 2
    assert "Cannot write nowhere/job.svg: No such file or directory." in answer.stderr


def test_draw_does_not_write_an_svg_into_a_png(cli: RunCli, folder: Path) -> None:
    answer = cli("machine", "draw", "job", "-o", "job.png")
    assert answer.returncode == 2
    assert "no format goes with .png" in answer.stderr
    assert not (folder / "job.png").exists()


def test_draw_highlights_a_state_and_a_path_regardless_of_letter_case(cli: RunCli) -> None:
    lit = cli("machine", "draw", "doors:DOOR", "--state", "OPEN", "--path", "Closed, Open").stdout
    assert lit != cli("machine", "draw", "doors:DOOR").stdout


@pytest.mark.parametrize("option", ["--state", "--path"])
def test_draw_lists_the_states_when_one_is_unknown(cli: RunCli, option: str) -> None:
    answer = cli("machine", "draw", "doors:DOOR", option, "opne")
    assert answer.returncode == 2
    assert "There is no state 'opne' of door. Did you mean open?" in answer.stderr


def test_draw_refuses_to_highlight_a_state_in_a_format_other_than_svg(cli: RunCli) -> None:
    answer = cli("machine", "draw", "doors:DOOR", "--format", "dot", "--state", "open")
    assert answer.returncode == 2
    assert "only svg can highlight states" in answer.stderr


def test_check_without_a_name_checks_all_machines_and_their_couplings(cli: RunCli) -> None:
    answer = cli("machine", "check", "--json")
    assert answer.returncode == 0
    verdicts = json.loads(answer.stdout)
    assert [verdict["machine"] for verdict in verdicts] == [*MACHINES, "couplings"]
    assert all(verdict["ok"] for verdict in verdicts)


def test_check_of_a_sound_machine_of_ones_own_is_fine(cli: RunCli) -> None:
    answer = cli("machine", "check", "doors:DOOR", "--json")
    assert answer.returncode == 0
    assert json.loads(answer.stdout) == {"machine": "door", "ok": True, "faults": []}


def test_check_lists_every_fault_of_a_malformed_declaration(cli: RunCli) -> None:
    answer = cli("machine", "check", "faulty:DOOR", "--json")
    assert answer.returncode == 1
    verdict = json.loads(answer.stdout)
    assert (verdict["machine"], verdict["ok"]) == ("door", False)
    assert [fault["code"] for fault in verdict["faults"]] == ["unexplained", "idle-turn", "no-stop-event"]


def test_check_continues_with_the_other_machines_after_a_faulty_one(cli: RunCli) -> None:
    answer = cli("machine", "check", "faulty:DOOR", "doors:DOOR", "job")
    assert answer.returncode == 1
    assert answer.stdout.splitlines()[-2:] == ["ok\tdoor", "ok\tjob"]


def test_diff_of_a_table_with_itself_is_nothing(cli: RunCli) -> None:
    cli("machine", "draw", "job", "-o", "old.json")
    answer = cli("machine", "diff", "old.json", "job")
    assert answer.returncode == 0
    assert answer.stdout.startswith("Nothing differs")


def test_an_exported_table_has_the_fingerprint_of_the_table_also_with_deadlines_in_whole_seconds(
    cli: RunCli, folder: Path
) -> None:
    text = (folder / "doors.py").read_text("utf-8")
    for old, new in {
        "import Machine,": "import Deadline, Machine, ignore, timer,",
        "close = ": 'slam = timer("slam", "The wind blows.", by="wind")\nclose = ',
        'turn="visitor"': 'turn="visitor", within=Deadline(slam, "open_s", 60)',
        "    rows=(": '    rows=(on(slam, Door.OPEN, Door.CLOSED, owner="wind", why="It is windy."),'
        ' ignore(slam, (Door.CLOSED, Door.GONE), why="It is shut."),',
    }.items():
        text = text.replace(old, new, 1)
    (folder / "windy.py").write_text(text, encoding="utf-8")
    drawn = cli("machine", "draw", "windy:DOOR", "-o", "old.json")
    assert drawn.returncode == 0, drawn.stderr
    answer = cli("machine", "diff", "old.json", "windy:DOOR")
    fingerprint = json.loads((folder / "old.json").read_text("utf-8"))["fingerprint"]
    assert answer.stdout == f"Nothing differs: both are door@{fingerprint}.\n"


def test_diff_exits_with_1_when_something_in_flight_would_be_stranded(cli: RunCli) -> None:
    answer = cli("machine", "diff", "doors:DOOR", "strict:DOOR")
    assert answer.returncode == 1
    assert "- state open" in answer.stdout
    assert "! stranded open: the new table has no such state" in answer.stdout


def test_diff_exits_with_code_0_when_no_existing_record_would_be_stranded(cli: RunCli) -> None:
    answer = cli("machine", "diff", "strict:DOOR", "doors:DOOR", "--json")
    assert answer.returncode == 0
    difference = json.loads(answer.stdout)
    assert (difference["ok"], difference["stranded"]) == (True, [])
    assert any(change.startswith("+ state open") for change in difference["changes"])


def test_couplings_are_reported_with_their_reason(cli: RunCli) -> None:
    lines = cli("machine", "couplings").stdout.splitlines()
    assert lines == [f"{coupling.sentence}\t{coupling.why}" for coupling in COUPLINGS]


def test_couplings_as_json_name_both_machines(cli: RunCli) -> None:
    entries = json.loads(cli("machine", "couplings", "--json").stdout)
    assert len(entries) == len(list(COUPLINGS))
    assert {entry["cause"] for entry in entries} | {entry["effect"] for entry in entries} <= set(MACHINES)


def test_an_exported_blueprint_can_be_shown_and_drawn_again(cli: RunCli, folder: Path) -> None:
    cli("machine", "draw", "doors:DOOR", "-o", "door.json")
    text = (folder / "door.json").read_text(encoding="utf-8")
    assert Blueprint.from_json(text).machine == "door"
    assert cli("machine", "show", "door.json", "--json").stdout == text
    assert cli("machine", "draw", "door.json").stdout == cli("machine", "draw", "doors:DOOR").stdout


@pytest.mark.parametrize("name", ["doors.py:DOOR", "./doors.py:DOOR", "doors:DOOR"])
@pytest.mark.parametrize("command", ["show", "check", "draw"])
def test_a_machine_can_be_named_by_the_file_it_is_in(cli: RunCli, command: str, name: str) -> None:
    answer = cli("machine", command, name)
    assert answer.returncode == 0, answer.stderr
    assert "door" in answer.stdout


def test_a_machine_in_a_file_of_a_package_is_imported_as_part_of_it(cli: RunCli, folder: Path) -> None:
    package = folder / "house"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "names.py").write_text('NAME = "a name of the package"\n', encoding="utf-8")
    text = (folder / "doors.py").read_text("utf-8")
    (package / "front.py").write_text(f"from house.names import NAME\n{text}", encoding="utf-8")
    assert cli("machine", "show", "house/front.py:DOOR").returncode == 0
