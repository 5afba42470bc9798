"""The slot `monitor`: who watches. A monitor implements `subscribe`; what it may listen to is in `nlpkernel.events`."""

from __future__ import annotations

from nlpkernel.hookspecs._spec import Point

POINT = Point(name="monitor", slot=True, many=True, free=True, must=("subscribe",), help="who watches a run")
