# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""MkDocs hooks that make the site complete by itself: README.md becomes the home page, source files to which pages link
become pages, the reference by doxygen becomes a part of the site, and links lead to these pages."""

import html
import posixpath
import re
import sys
import urllib.parse
import xml.etree.ElementTree as etree
from pathlib import Path

import markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "build/docs/api"
TAGS = ROOT / "build/docs/spar.tag"

sys.path.append(str(ROOT / "scripts/lint"))
import tree  # noqa: E402

LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".h": "cpp", ".c": "c", ".py": "python",
             ".json": "json", ".f90": "fortran", ".cmake": "cmake"}

PYTHON = "reference/python.md"
PYTHON_PAGES = (PYTHON, "guide/python.md", "guide/torch.md", "results/python.md")  # their names are not those of C++

headers = {}  # header, as include/spar/...: its page in the reference
names = {}  # public name, with and without spar::, and its place in the reference
repository_path = {}  # page of the site: the file of the repository
python_names = set()  # public names of the package for Python, such as spar.Sparse
current = None  # the page whose links are being changed


def read_tags():
    """Fills `headers` and `names` from doxygen's tag file."""
    found = {}
    for compound in etree.parse(TAGS).getroot():
        name, page = compound.findtext("name"), compound.findtext("filename")
        page = page if page.endswith(".html") else page + ".html"
        if compound.get("kind") == "file":
            headers["include/" + compound.findtext("path") + name] = page
            continue
        if compound.get("kind") in ("class", "struct", "concept"):
            found.setdefault(re.sub(r"<.*", "", name).strip(), page)
        if compound.get("kind") == "namespace":
            for member in compound.findall("member"):
                place = f"{member.findtext('anchorfile')}#{member.findtext('anchor')}"
                found.setdefault(f"{name}::{member.findtext('name')}", place)
    for name, place in found.items():
        names[name] = place
        short = name.removeprefix("spar::")
        if "_" in short:  # without an underscore, a word in a page is often something else
            names[short] = place


def place_of(code):
    """The page and the anchor that explain a public name, or None: `code` is the name, in Python also with a member or
    arguments after it."""
    python = re.match(r"spar\.(torch\.)?\w+", code)
    if python and python[0] in python_names:
        return f"{PYTHON}#{python[0]}"
    return "api/" + names[code] if code in names and current not in PYTHON_PAGES else None


def site_path(path):
    """The page of the site, or the file, that shows the file or folder `path` of the repository."""
    if path == "README.md":
        return "index.md"
    if path == "docs" or path.startswith("docs/"):
        page = path.removeprefix("docs").removeprefix("/")
        return posixpath.join(page, "index.md") if (ROOT / path).is_dir() else page
    if path in headers:
        return "api/" + headers[path]
    if (ROOT / path).is_dir():
        return f"source/{path}/README.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def target(base, link):
    """The path in the repository, and the anchor, to which a relative link leads from the file `base`."""
    address = urllib.parse.urlsplit(link)
    if address.scheme or address.netloc or not address.path or address.path.startswith("/"):
        return None, ""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(base), urllib.parse.unquote(address.path)))
    return path, address.fragment


def links_of(text):
    """The addresses of all links in a page."""
    page = markdown.markdown(text, extensions=["fenced_code", "tables"])
    return [html.unescape(link) for link in re.findall(r'<a href="([^"]*)"', page)]


def listing(folder):
    """A page that lists the files of a folder, in place of a README.md."""
    rows = "\n".join(f"- [{name.removeprefix(folder + '/')}]({name.removeprefix(folder + '/')})"
                     for name in tree.files(under=folder + "/"))
    return f"# {folder}\n\n{rows}\n"


def page_text(path):
    """Markdown of the page that shows a file or a folder of the repository."""
    if (ROOT / path).is_dir():
        readme = f"{path}/README.md"
        return tree.text(readme) if (ROOT / readme).exists() else listing(path)
    text = tree.text(path)
    if path.endswith(".md"):
        return text
    language = LANGUAGES.get(Path(path).suffix, "text")
    if language == "text" and text.startswith("#!"):
        language = "python" if "python" in text.split("\n", 1)[0] else "sh"
    return f"---\nhide: [toc]\nsearch:\n  exclude: true\n---\n# {path}\n\n~~~~~~{language}\n{text}\n~~~~~~\n"


def on_files(files, config):
    read_tags()
    python_names.update(re.findall(r"^::: (.*)", (ROOT / "docs" / PYTHON).read_text(encoding="utf-8"), re.MULTILINE))
    for file in sorted(API.rglob("*")):
        if file.is_file() and file.suffix != ".map":
            files.append(File("api/" + str(file.relative_to(API)), str(API.parent), config.site_dir, False))
    pages = [("README.md", tree.text("README.md"))]
    pages += [("docs/" + file.src_uri, file.content_string) for file in files.documentation_pages()]
    files.append(File.generated(config, "index.md", content=pages[0][1]))
    for file in files.documentation_pages():
        repository_path[file.src_uri] = "docs/" + file.src_uri
    repository_path["index.md"] = "README.md"
    for path, text in pages:  # grows while it is read
        for link in links_of(text):
            to, _ = target(path, link)
            if to is None or not (ROOT / to).exists():
                continue  # not found: MkDocs reports this link
            page = site_path(to)
            if page in repository_path or not page.startswith("source/"):
                continue
            content = page_text(to)
            repository_path[page] = f"{to}/README.md" if (ROOT / to).is_dir() else to
            files.append(File.generated(config, page, content=content))
            if page.endswith("/README.md") or to.endswith(".md"):
                pages.append((repository_path[page], content))
    return files


class Links(Treeprocessor):
    """Changes links to files of the repository into links to pages of the site, and code that is a public name into a
    link to the reference. Runs before MkDocs, which checks the links."""

    def relative(self, page):
        return posixpath.relpath(page, posixpath.dirname(current) or ".")

    def run(self, root):
        for element in root.iter():
            for key in ("href", "src"):
                link = element.get(key)
                path, anchor = target(repository_path[current], link) if link else (None, "")
                if path and (ROOT / path).exists():
                    element.set(key, self.relative(site_path(path)) + (f"#{anchor}" if anchor else ""))
        for parent in list(root.iter()):
            if parent.tag in ("a", "pre", "h1", "h2", "h3", "h4"):
                continue
            for place, child in enumerate(list(parent)):
                known = place_of(child.text or "") if child.tag == "code" else None
                if known and not len(child):
                    link = etree.Element("a", {"href": self.relative(known)})
                    link.tail, child.tail = child.tail, None
                    link.append(child)
                    parent[place] = link


class LinkExtension(Extension):
    def extendMarkdown(self, md):
        md.treeprocessors.register(Links(md), "spar", 5)  # after the inline patterns (20), before MkDocs (0)


def on_config(config):
    config.markdown_extensions.append(LinkExtension())
    return config


def on_page_markdown(text, page, config, files):
    global current
    current = page.file.src_uri
    return separate_lists(text)


def separate_lists(text):
    """Puts an empty line between a paragraph and a list that follows it, which CommonMark does not need."""
    lines, fenced = [], None
    for line in text.split("\n"):
        fence = re.match(r" *(```+|~~~+)", line)
        if fence and fenced is None:
            fenced = fence[1]
        elif fence and line.strip().startswith(fenced):
            fenced = None
        item = re.match(r"([-*]|1\.) ", line) and fenced is None
        if item and lines and lines[-1].strip() and not re.match(r" |[-*] |\d+\. ", lines[-1]):
            if not in_list(lines):
                lines.append("")
        lines.append(line)
    return "\n".join(lines)


def in_list(lines):
    """Whether the last line continues an item of a list."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if re.match(r"([-*]|\d+\.) ", line):
            return True
    return False


def on_post_build(config):
    """Mends lunr, the search library: it merges nodes of its trie whose edges have equal texts `label id label id ...`,
    and different edges have equal texts where labels are digits. A query then fails on words that no page contains."""
    text, mended = "e=e+s+o.id}return e", 'e=e+s+o.id+","}return e'
    workers = list(Path(config["site_dir"]).glob("assets/javascripts/workers/search.*.min.js"))
    assert len(workers) == 1, f"the search has {len(workers)} workers"
    worker = workers[0].read_text(encoding="utf-8")
    assert worker.count(text) == 1, f"{workers[0].name} is no longer as on_post_build expects it"
    workers[0].write_text(worker.replace(text, mended), encoding="utf-8")
