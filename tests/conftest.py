from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# Python processes that tests start must import the installed package too, not the folder they are started in; and they
# share the modules beside this file.
os.environ["PYTHONSAFEPATH"] = "1"
os.environ["PYTHONPATH"] = str(Path(__file__).parent)

hypothesis.settings.register_profile("default", deadline=None, derandomize=True, database=None, print_blob=True)
hypothesis.settings.register_profile("explore", deadline=None, derandomize=False, max_examples=2000, print_blob=True)
hypothesis.settings.load_profile("default")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
