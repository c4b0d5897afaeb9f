"""Draw the pictures of the documents, into this folder or the one given: ``python docs/pictures.py [folder]``.

A test compares the committed ones with what this draws.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fastpool as fp
from fastpool import _plots


def pictures(folder: Path) -> None:
    """Write every picture."""
    floor, ceil = (fp.explain((225,), (2,), ceil_mode=ceil_mode).axes for ceil_mode in (False, True))
    _plots.save(_plots.draw([floor, ceil]), folder / "explain-225.svg")
    fp.explain((5, 5), (3, 3), stride=2, padding=1).plot(folder / "explain-5x5.svg")


if __name__ == "__main__":
    pictures(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
