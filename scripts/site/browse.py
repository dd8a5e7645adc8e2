#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""browse.py SITE [PICTURES]: opens pages of the built site as files in Chromium, as wide as a desktop and as a phone,
and checks them: nothing on the console, no page wider than the window, all pictures visible, and the search finds a
word. Writes pictures of the pages to the folder PICTURES."""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTHS = {"desktop": (1300, 900), "phone": (390, 844)}

MISSING = """() => [...document.images]
    .filter((i) => i.checkVisibility() && !(i.complete && i.naturalWidth > 0)).map((i) => i.src)"""


def narrow(page, window):
    """The elements that make the page wider than the window."""
    return page.evaluate("""(width) => {
        if (document.scrollingElement.scrollWidth <= width) return [];
        return [...document.body.querySelectorAll('*')]
            .filter((e) => e.getBoundingClientRect().right > width + 1).slice(0, 3)
            .map((e) => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 40));
    }""", window)


def pages_of(site):
    """All pages that people write, and some of the reference."""
    own = [p for p in site.rglob("*.html") if "api" not in p.relative_to(site).parts]
    return sorted(own) + [site / "api" / name for name in ("index.html", "namespacespar.html", "spar_8hpp.html",
                                                           "classspar_1_1communicator__rank.html")]


def faults(site, pictures):
    """(page, sentence) for each fault."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for device, (width, height) in WIDTHS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            said = []
            page.on("console", lambda line: said.append(line.text) if line.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("requestfailed", lambda request: said.append(f"{request.url} did not load: {request.failure}")
                    if request.failure != "net::ERR_ABORTED" else None)  # aborted: by opening the next page
            page.on("request", lambda request: said.append(f"asks the network for {request.url}")
                    if not request.url.startswith(("file:", "data:", "blob:", "about:")) else None)
            for path in pages_of(site):
                shown = f"{path.relative_to(site)} ({device})"
                said.clear()
                page.goto(path.as_uri())
                yield from ((shown, text) for text in said)
                for element in narrow(page, width):
                    yield shown, f"wider than {width} pixels: {element}"
                for source in page.evaluate(MISSING):
                    yield shown, f"the picture {source} is not visible"
                if pictures:
                    name = f"{device}-{str(path.relative_to(site)).replace('/', '-')}.png"
                    page.screenshot(path=str(pictures / name))
            yield from ((f"search ({device})", text) for text in search(page, site, said))
        browser.close()


def search(page, site, said):
    """What is wrong with the search for a word that pages contain, and for one that they do not."""
    for word, found in (("residual", True), ("1e-6", True), ("zyzzyva", False)):
        said.clear()
        page.goto((site / "index.html").as_uri())
        if not page.locator(".md-search__input").is_visible():
            page.locator("label[for=__search].md-header__button").click()
        page.locator(".md-search__input").press_sequentially(word)
        page.wait_for_function("""() => /[0-9]|No/.test(
            document.querySelector('.md-search-result__meta')?.textContent ?? '')""", timeout=20000)
        results = page.locator(".md-search-result__item").count()
        if (results > 0) != found:
            yield f"{results} results for {word}"
        yield from said


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    where = Path(sys.argv[2]) if len(sys.argv) == 3 else None
    if where:
        where.mkdir(parents=True, exist_ok=True)
    wrong = [f"{place}: {sentence}" for place, sentence in faults(Path(sys.argv[1]).resolve(), where)]
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)
