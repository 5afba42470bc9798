"""The extension point `policy`: who may end a run, save it, or take it back. A policy implements `decide`."""

from __future__ import annotations

from nlpkernel.hookspecs._spec import Point

POINT = Point(name="policy", many=True, must=("decide",), help="who may end a run, save it, or take it back")
