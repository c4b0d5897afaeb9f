"""``import fastpool``, and NumPy's share of it."""


def timeraw_import_fastpool():
    return "import fastpool"


def timeraw_import_numpy():
    return "import numpy"
