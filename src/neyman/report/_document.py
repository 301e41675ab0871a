"""The frame of every page: one file, complete, without network or script."""

from __future__ import annotations

from neyman.report._markup import Markup, join, tag
from neyman.report._style import style_sheet

# Nothing is fetched and nothing runs, whatever a prompt id or a reason may hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def document(title: str, description: str, body: Markup) -> str:
    """Return a page as text.

    Args:
        title: for the browser's tab.
        description: a sentence or two.
        body: the header and the main part.
    """
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="description", content=description),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(style_sheet())),
    )
    footer = tag(
        "footer", "Written by neyman. This file is complete: it needs no network and runs no script."
    )
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", body, footer), lang="en") + "\n"
