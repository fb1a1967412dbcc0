"""The program `interlock`, also as `python -m interlock`. It installs signal handlers before other
imports.
"""

from __future__ import annotations

import signal
import sys

from interlock.cli import help_pages
from interlock.processes import early_signals


def main() -> int:
    """Run the command line of this process; return the exit code."""
    words = sys.argv[1:]
    if (code := help_pages.print_page(words)) is not None:
        return code
    early_signals.exit_on_signals(words)
    try:
        from interlock.cli.main import main as run  # noqa: PLC0415 - takes a second, in which signals arrive

        if not early_signals.is_service(words):  # these handle signals themselves
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run()
    except KeyboardInterrupt:
        code = early_signals.INTERRUPTED
    early_signals.has_ended()
    return code


if __name__ == "__main__":
    sys.exit(main())
