"""Settings of the site that `make docs` builds with Sphinx from the pages of this directory.

index.md is the table of contents: its headings and lists of links are those of the site's
navigation, so that nothing has to be said twice.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

project = "hvdperf"
extensions = ["myst_parser"]
root_doc = "index"
myst_heading_anchors = 4
html_theme = "furo"
html_title = "hvdperf"
html_copy_source = False
html_show_copyright = False
# Nothing but files of the site: no fonts, scripts or pictures from elsewhere.
html_theme_options: dict[str, Any] = {"top_of_page_buttons": []}


def navigation(text: str) -> str:
    """Return the tables of contents that Sphinx takes its navigation from. text: index.md."""
    found = []
    for section in text.split("\n## ")[1:]:
        pages = re.findall(r"^- \[[^]]+\]\(([^)]+)\.md\)", section, re.MULTILINE)
        title = section.partition("\n")[0]
        found.append(
            f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```"
        )
    return "\n\n".join(found)


def _add_navigation(_: Sphinx, name: str, source: list[str]) -> None:
    if name == root_doc:
        source[0] += "\n\n" + navigation(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", _add_navigation)
    return {"parallel_read_safe": True}
