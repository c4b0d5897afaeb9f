"""The ``fastpool`` command: its entry point, which must work where the `cli` extra is missing.

The commands are in ``_commands.py``, and what ``fastpool demo`` does is in ``_demo.py``.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

# What the extra installs, by the names that are imported.
_EXTRA = ("click", "nibabel", "rich")


def main() -> None:
    """Run the command line that `sys.argv` holds, and exit with its status."""
    try:
        from ._commands import fastpool

        fastpool(prog_name="fastpool")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        sys.exit(f"fastpool's command line needs {missing}, which is missing: pip install 'fastpool[cli]'")
