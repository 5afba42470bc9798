from pathlib import Path

import pytest

from nlpkernel.errors import DataError
from nlpkernel_mail.component import Mail
from nlpkernel_sdk.files import Opened, Tally
from nlpkernel_sdk.testing import make_run

SAMPLE, ODD = (Path(__file__).parent / f"{name}.mbox" for name in ("sample", "odd"))


def read(path, columns, *, skip=True, html=False):
    reader, tally = make_run(path.parent).ask(Mail(html=html), "create_reader"), Tally(skip=skip)
    parts = list(reader.read(Opened(path), columns, tally))
    rows = [row for part in parts for row in zip(*(part.columns[name] for name in columns), strict=True)]
    return rows, [place for part in parts for place in part.places], tally.counted


def test_text_and_headers_are_decoded_by_what_each_mail_says():
    rows, places, _ = read(SAMPLE, ["subject", "text", "from"], skip=False)
    assert rows[0] == (
        "Gr\u00fc\u00dfe",
        "Sch\u00f6ne Gr\u00fc\u00dfe!\nFrom here.\n\n",
        "Anna <anna@example.org>",
    )
    assert rows[1][:2] == ("Second", "A second mail.\n")
    assert places == [1, 11]


def test_mails_of_html_come_when_they_are_wanted_and_broken_ones_are_counted():
    assert read(ODD, ["subject"]) == ([], [], {"mails without a text": 1, "broken mails": 1})
    rows, places, counted = read(ODD, ["subject"], html=True)
    assert (rows, places, counted) == ([("Only HTML",)], [1], {"broken mails": 1})
    with pytest.raises(DataError, match=r"odd\.mbox:8:1: MAI002 the mail cannot be read"):
        read(ODD, ["subject"], skip=False)


def test_what_is_no_mbox_stops_or_is_counted(tmp_path):
    path = tmp_path / "a.mbox"
    path.write_text("\nHello\n", encoding="utf-8")
    with pytest.raises(DataError, match=r":2:1: MAI002 the file does not begin"):
        read(path, ["text"], skip=False)
    assert read(path, ["text"])[2] == {"files that are no mbox": 1}
    with pytest.raises(DataError, match="MAI001 there is no column 'body'; the columns are: text, subject"):
        read(SAMPLE, ["body"])
