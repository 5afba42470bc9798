from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .launching import Job


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A folder with a plan, and processes in it; what a test leaves of them is killed."""
    made = Job(tmp_path)
    yield made
    made.close()
