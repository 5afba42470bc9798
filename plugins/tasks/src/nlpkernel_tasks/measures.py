"""The measures of written texts. Light: what counts them is in `texts`."""

from __future__ import annotations

from typing import Literal

#: The names that a plan may ask for.
Measure = Literal["bleu", "chrf", "rouge"]
