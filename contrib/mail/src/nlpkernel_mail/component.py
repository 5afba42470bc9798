"""The component, as a plan sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.reader import Reader


@component
class Mail:
    """The e-mails of an mbox file (RFC 4155): each is a record with the columns text, subject, from and date."""

    html: bool = setting(
        default=False, help="take the text of mails that have only HTML too, as it is written"
    )

    @hookimpl
    def create_reader(self) -> Reader:
        """Make the reader."""
        from nlpkernel_mail.mbox import MailReader

        return MailReader(self.html)
