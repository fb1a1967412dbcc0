"""Make the Python beside `src/interlock/wire/fleet/fleet.proto` from it.

python tools/proto.py           write it
python tools/proto.py --check   write nothing; exit 1 when a file is not what would be written
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

SRC = Path(__file__).parents[1] / "src"
PROTO = Path("interlock/wire/fleet/fleet.proto")
UNTYPED = "_aio.ServicerContext):  # type: ignore[misc, type-arg]"
TYPED = "_aio.ServicerContext[_typing.Any, _typing.Any]):  # type: ignore[misc]"
"""What mypy-protobuf writes leaves the parameters of a class open, and with it the types of all methods."""
MADE = ("fleet_pb2.py", "fleet_pb2.pyi", "fleet_pb2_grpc.py", "fleet_pb2_grpc.pyi")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the files; the answer is the exit code."""
    parser = argparse.ArgumentParser(description="Make the Python of the fleet's wire from fleet.proto.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a file is stale")
    if parser.parse_args(arguments).check:
        return _report(stale())
    generate(SRC)
    return 0


def stale(source: Path = SRC) -> list[str]:
    """The names of the files that are not as they would be made now."""
    with TemporaryDirectory() as folder:
        generate(Path(folder), source)
        made = {name: (Path(folder) / PROTO.parent / name).read_bytes() for name in MADE}
    beside = {name: source / PROTO.parent / name for name in MADE}
    return [name for name, path in beside.items() if not path.is_file() or path.read_bytes() != made[name]]


def generate(into: Path, source: Path = SRC) -> None:
    """Make the files of the proto below `source` in the same folder below `into`."""
    programs = Path(sys.executable).parent
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}"]
    command += [f"--{kind}_out={into}" for kind in ("python", "grpc_python")]
    for kind in ("mypy", "mypy_grpc"):
        plugin = f"--plugin=protoc-gen-{kind}={programs / f'protoc-gen-{kind}'}"
        command += [plugin, f"--{kind}_out=quiet:{into}"]
    subprocess.run([*command, str(PROTO)], check=True, timeout=60)
    for name in MADE:
        path = into / PROTO.parent / name
        path.write_text(path.read_text(encoding="utf-8").replace(UNTYPED, TYPED), encoding="utf-8")


def _report(names: Sequence[str]) -> int:
    for name in names:
        print(f"proto: stale {name}", file=sys.stderr)
    if names:
        print("→ Run: make proto", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
