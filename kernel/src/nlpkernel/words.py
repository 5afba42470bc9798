"""Numbers as a person reads them."""

from __future__ import annotations


def size(number: float) -> str:
    """Bytes in the largest unit of 1000 that leaves a digit before the point: `18.3 kB`, `1.25 GB`."""
    if number < 1000:
        return f"{number:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        number /= 1000
        if number < 999.5 or unit == "TB":
            break
    return f"{number:.3g} {unit}"


def duration(seconds: float) -> str:
    """Seconds as `0.52 ms`, `3.4 s`, `12 m 05 s`, `3 h 20 m`."""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} m {seconds % 60:02.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:02.0f} m"
