"""``python -m fastpool`` is the ``fastpool`` command."""

from .cli import main

if __name__ == "__main__":
    main()
