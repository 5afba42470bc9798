"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "PRC001": (
        "the device cannot compute in this number format",
        "The plan names a precision that the run's device does not have: tf32 needs a CUDA device of compute\n"
        "capability 8.0 or later, bf16 and fp16 need one for which torch has autocast with that type. No other\n"
        'format is taken in its place. Name another precision, `use = "auto"`, or another device in [communicator].',
    ),
    "PRC002": (
        "auto does not know this device",
        "`auto` picks a format by what is known of the hardware, and nothing is known of this kind of device.\n"
        'Name a precision: "fp32" works wherever torch does.',
    ),
}
