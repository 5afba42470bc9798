"""The release of this distribution, which both sides of a connection must have."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    RELEASE = version("nlpkernel-plugin-zmq")
except PackageNotFoundError:  # Run from its sources, as a test of the wire does.
    RELEASE = "unknown"
