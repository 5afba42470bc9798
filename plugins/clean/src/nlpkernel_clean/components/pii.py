"""The stage `pii`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.stage import Stage

Kind = Literal["email", "iban", "card", "ip", "phone", "name"]

#: What stands for each kind, where the plan says nothing else.
REPLACEMENT: dict[str, str] = {
    "email": "<EMAIL>",
    "iban": "<IBAN>",
    "card": "<CARD>",
    "ip": "<IP>",
    "phone": "<PHONE>",
    "name": "<NAME>",
}


@component
class Pii:
    """Personal data masked: e-mail addresses, phone numbers, payment cards, IP addresses, IBANs, names of a list."""

    libraries: ClassVar[tuple[str, ...]] = ("phonenumbers",)

    kinds: tuple[Kind, ...] = setting(
        default=("email", "iban", "card", "ip", "phone"),
        min_length=1,
        help="what is looked for; of finds that overlap the safest kind wins: email, iban, card, ip, phone, name",
    )
    action: Literal["mask", "drop"] = setting(
        default="mask", help="mask: a replacement stands for each find; drop: a document that holds any goes"
    )
    replacement: dict[str, str] = setting(
        factory=dict,
        help='what stands for a kind: { email = "someone@example.org" }; left out: <EMAIL>, <PHONE>, ...',
    )
    regions: tuple[str, ...] = setting(
        default=("US",),
        help="countries (ISO 3166: `US`, `DE`) whose way to write phone numbers counts; those with + and a country's "
        "code are always found",
    )
    phones: Literal["valid", "possible"] = setting(
        default="valid",
        help="valid: only numbers that the country's plan assigns; possible: all of a fitting length, and so dates "
        "and other numbers, too",
    )
    names: Path | None = setting(
        default=None, help="file of first and family names, one a line; needed by the kind `name`"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        unknown = sorted(self.replacement.keys() - REPLACEMENT.keys())
        if unknown:
            yield "replacement", f"there is no kind {unknown[0]!r}; kinds are {', '.join(REPLACEMENT)}"
        if "name" in self.kinds and self.names is None:
            yield "names", "names are found by a list of them: give its file, or leave the kind `name` out"
        if "name" not in self.kinds and self.names is not None:
            yield "names", 'a list of names has a meaning only with "name" among the kinds'
        if "phone" in self.kinds and not self.regions:
            yield "regions", 'phone numbers need a region; ["ZZ"] finds those with a country\'s code alone'

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it. Raises DataError for a region that is none, and for a list of names that cannot be read."""
        from nlpkernel_clean.masking import Masker

        return Masker(self)
