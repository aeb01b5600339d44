#!/usr/bin/env python3
"""Checks the documents: README.md is short, and no relative link leads nowhere.

A link is `[text](target)` outside of code. Its file or folder must exist, and its `#anchor` must be a heading of the
file that it names, spelt as GitHub spells it. Links with a scheme (`https:`) are not followed.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README_BYTES_MAX = 8_000
"""Exclusive. What is longer belongs into docs/."""

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$")
FENCE = re.compile(r"^ *(```|~~~)")


def main():
    documents = sorted(path for pattern in ("*.md", "docs/**/*.md") for path in ROOT.glob(pattern))
    problems = []
    size = (ROOT / "README.md").stat().st_size
    if size >= README_BYTES_MAX:
        problems.append(f"README.md has {size} bytes, {README_BYTES_MAX - 1} are allowed: move something to docs/")
    links = 0
    for document in documents:
        for number, target in links_of(document):
            links += 1
            if problem := broken(document, target):
                problems.append(f"{document.relative_to(ROOT)}:{number}: {target}: {problem}")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"{len(documents)} documents, {links} links, README.md has {size} bytes")


def prose(document):
    """Lines with their numbers, without fenced code."""
    fenced = False
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def links_of(document):
    for number, line in prose(document):
        # A link's text may be code, but a link within code is not a link.
        for match in LINK.finditer(re.sub(r"(?<!\[)`[^`]*`(?!\])", "", line)):
            yield number, match[1]


def broken(document, target):
    """What is wrong with a link, or None."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE):
        return None
    path, _, anchor = target.partition("#")
    file = (document.parent / path).resolve() if path else document
    if not file.is_relative_to(ROOT):
        return "leads out of the repository"
    if not file.exists():
        return "there is no such file"
    if anchor and (file.suffix != ".md" or anchor not in anchors(file)):
        return "there is no such heading"
    return None


def anchors(document):
    """Of all headings: lower case, without punctuation, spaces as hyphens; what repeats is numbered."""
    found, seen = set(), {}
    for _, line in prose(document):
        if heading := HEADING.match(line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            repeats = seen.get(name, 0)
            seen[name] = repeats + 1
            found.add(f"{name}-{repeats}" if repeats else name)
    return found


if __name__ == "__main__":
    main()
