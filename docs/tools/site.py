"""What mkdocs.yml leaves open: the order of pages, and links to files that are no pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[((?:[^\[\]]|\\.)*)\]\(([^)\s]+)\)")


def linked(page: str) -> list[str]:
    """The pages that a page links to, in order, each once."""
    folder = (DOCS / page).parent
    found = [(folder / target).resolve() for _, target in LINK.findall((DOCS / page).read_text())]
    return list(dict.fromkeys(str(f.relative_to(DOCS)) for f in found if f.suffix == ".md"))


def on_config(config: Any) -> Any:
    """Puts pages in the order in which the first page, and the first of each folder, has them."""
    config["nav"] = ["index.md"]
    for page in linked("index.md"):
        if page.endswith("/index.md"):
            folder = page.removesuffix("index.md")
            inside = [each for each in linked(page) if each.startswith(folder)]
            config["nav"].append({folder.strip("/").capitalize(): [page, *inside]})
        elif "/" not in page:
            config["nav"].append(page)
    return config


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """Leaves the words of links that lead out of docs/, to files of the source.

    In code of tables, bars are not escaped here, as they are where others show these pages.
    """
    folder = (DOCS / page.file.src_uri).parent

    def kept(link: re.Match[str]) -> str:
        target = (folder / link[2].partition("#")[0]).resolve()
        outside = "://" not in link[2] and not target.is_relative_to(DOCS)
        return link[1] if outside else link[0]

    rows = re.sub(
        r"^\|.*$",
        lambda row: re.sub(r"`[^`]*`", lambda span: span[0].replace("\\|", "|"), row[0]),
        markdown,
        flags=re.M,
    )
    return LINK.sub(kept, rows)
