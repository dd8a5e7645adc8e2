#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check.py SITE: checks the built site: every link leads to a page and an anchor of the site, nothing is loaded from
the network, every picture has alternative text, every page a title, and links lead from the home page to every page.
Links to other sites are not followed. --self-test checks that each fault is found."""

import sys
import tempfile
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """What one page defines and what it refers to."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads, self.pictures, self.title = set(), [], [], [], ""
        self.in_title = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        has = dict(attributes)
        self.anchors.update(has[key] for key in ("id", "name") if has.get(key))
        line = self.getpos()[0]
        if tag in ("a", "area") and has.get("href"):
            self.links.append((line, has["href"]))
        if tag in ("img", "script", "iframe", "source") and has.get("src"):
            self.loads.append((line, has["src"]))
        if tag == "link" and has.get("href") and has.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append((line, has["href"]))
        if tag == "img":
            self.pictures.append((line, has.get("alt") or ""))
        self.in_title = tag == "title" and not self.title

    def handle_endtag(self, tag):
        self.in_title = False

    def handle_data(self, data):
        if self.in_title:
            self.title += data.strip()


def faults(site):
    """(page, line, sentence) for each fault of the site in the folder `site`."""
    site = site.resolve()
    # What doxygen's search shows in a frame is no page.
    files = [p for p in sorted(site.rglob("*.html")) if p.parent != site / "api/search"]
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in files}
    linked = {site / "index.html"}
    for path, page in pages.items():
        shown = path.relative_to(site)
        if not page.title:
            yield shown, 1, "page without a title"
        for line, alt in page.pictures:
            if not alt.strip():
                yield shown, line, "picture without alternative text"
        for kind, references in (("link", page.links), ("resource", page.loads)):
            for line, reference in references:
                address = urllib.parse.urlsplit(reference)
                if address.scheme in ("javascript", "data", "mailto"):
                    continue
                if address.scheme or address.netloc:
                    if kind == "resource":
                        yield shown, line, f"loads {reference} from the network"
                    continue
                to = path
                if address.path.startswith("/"):
                    yield shown, line, f"{kind} {reference} is absolute"
                    continue
                if address.path:
                    to = (path.parent / urllib.parse.unquote(address.path)).resolve()
                if not to.is_file():
                    yield shown, line, f"{kind} to {reference}, which does not exist"
                    continue
                if to != path:
                    linked.add(to)
                anchor = urllib.parse.unquote(address.fragment)
                if anchor and to in pages and anchor not in pages[to].anchors:
                    yield shown, line, f"{kind} to {reference}, an anchor that does not exist"
    for path in pages:
        shown = path.relative_to(site)
        if path not in linked and shown.parts[0] != "api":  # scripts of doxygen write the navigation of the reference
            yield shown, 1, "no page links to this page"


def self_test():
    def found(**files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (Path(folder) / f"{name}.html").write_text(text)
            return [sentence for *_, sentence in faults(Path(folder))]

    title = "<title>t</title>"
    good = found(index=title + '<a href="b.html#x">', b=title + '<h1 id="x"><img alt="a" src="b.html">')
    yield "rejected a good site", good == []
    yield "no title", found(index="") == ["page without a title"]
    yield "no alternative text", found(index=title + '<img src="">') == ["picture without alternative text"]
    yield "a missing page", found(index=title + '<a href="b.html">') == ["link to b.html, which does not exist"]
    yield "a missing anchor", found(index=title + '<a href="#b">') == ["link to #b, an anchor that does not exist"]
    yield "a script from the network", len(found(index=title + '<script src="https://a.org/b.js">')) == 1
    yield "a link to the network", found(index=title + '<a href="https://a.org/">') == []
    yield "a page to which no page links", found(index=title, b=title) == ["no page links to this page"]


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        wrong = [f"self-test: {what}" for what, held in self_test() if not held]
    elif len(sys.argv) == 2:
        wrong = [f"{page}:{line}: {sentence}" for page, line, sentence in faults(Path(sys.argv[1]))]
    else:
        sys.exit(__doc__)
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)
