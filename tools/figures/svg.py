# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The style that all drawn pictures share, and the elements of which they consist. The same input gives the same bytes:
a picture contains no date, and no number has more than one decimal."""

from xml.sax.saxutils import escape

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
INK, SOFT, FAINT, LANE, PAPER = "#1f2937", "#56606e", "#d9dee5", "#aab3bf", "#ffffff"
# Light backgrounds of boxes.
BLUE, GREEN, YELLOW, PINK, GREY, ORANGE = "#dbeafe", "#dcfce7", "#fef3c7", "#fce7f3", "#e8ecf1", "#ffedd5"


def number(x):
    return f"{x:.1f}".removesuffix(".0").replace("-0", "0") if abs(x) < 0.05 else f"{x:.1f}".removesuffix(".0")


def attributes(values):
    return "".join(f' {k.replace("_", "-")}="{number(v) if isinstance(v, (int, float)) else escape(v)}"'
                   for k, v in values.items() if v is not None)


def element(tag, content=None, **values):
    return f"<{tag}{attributes(values)}/>" if content is None else f"<{tag}{attributes(values)}>{content}</{tag}>"


def text(x, y, words, size=14, colour=INK, anchor=None, bold=False, italic=False):
    return element("text", escape(words), x=x, y=y, font_size=size, fill=colour, text_anchor=anchor,
                   font_weight="bold" if bold else None, font_style="italic" if italic else None)


def rectangle(x, y, width, height, fill, stroke=None, radius=0, **more):
    return element("rect", x=x, y=y, width=width, height=height, rx=radius or None, fill=fill, stroke=stroke, **more)


def line(x1, y1, x2, y2, colour, width=1, dash=None):
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_width=width, stroke_dasharray=dash)


def circle(x, y, radius, colour):
    return element("circle", cx=x, cy=y, r=radius, fill=PAPER, stroke=colour, stroke_width=2)


def polyline(points, colour, width=1.5, dash=None):
    return element("polyline", points=" ".join(f"{number(x)},{number(y)}" for x, y in points), fill="none",
                   stroke=colour, stroke_width=width, stroke_dasharray=dash, stroke_linejoin="round")


def head(x, y, dx, dy, size, colour):
    """The head of an arrow that ends at (x, y) in the direction (dx, dy)."""
    length = (dx * dx + dy * dy) ** 0.5
    ux, uy = dx / length, dy / length
    corners = [(x, y)] + [(x - size * ux + side * 0.45 * size * uy, y - size * uy - side * 0.45 * size * ux)
                          for side in (1, -1)]
    return element("polygon", points=" ".join(f"{number(a)},{number(b)}" for a, b in corners), fill=colour)


def arrow(points, colour=SOFT, width=1.5, size=9, dash=None, both=False):
    """A line through the points with a head at its end, and with `both` also at its start."""

    def shorter(of, to):  # so that the line does not show beside the point of the head
        dx, dy = of[0] - to[0], of[1] - to[1]
        length = (dx * dx + dy * dy) ** 0.5
        return of[0] - 0.7 * size * dx / length, of[1] - 0.7 * size * dy / length

    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = points[0], points[1], points[-2], points[-1]
    middle = list(points)
    middle[-1] = shorter(points[-1], points[-2])
    heads = head(x3, y3, x3 - x2, y3 - y2, size, colour)
    if both:
        middle[0] = shorter(points[0], points[1])
        heads += head(x0, y0, x0 - x1, y0 - y1, size, colour)
    return polyline(middle, colour, width, dash) + heads


def box(x, y, width, height, fill, title, lines=(), size=14, stroke="#8b97a8"):
    """A box with a bold title and lines of text below it, centred."""
    parts = [rectangle(x, y, width, height, fill, stroke, 8)]
    step = size + 3
    top = y + height / 2 - step * len(lines) / 2 + 0.36 * size
    parts.append(text(x + width / 2, top, title, size, INK, "middle", bold=True))
    parts += [text(x + width / 2, top + step * (i + 1), words, size - 1.5, SOFT, "middle")
              for i, words in enumerate(lines)]
    return "".join(parts)


def picture(width, height, title, description, parts):
    """A whole file: white paper with round corners, legible on light and dark pages."""
    body = "\n".join(p for p in parts if p)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
            f'width="{number(width)}" height="{number(height)}" role="img" aria-labelledby="title description" '
            f'font-family="{FONT}">\n<title id="title">{escape(title)}</title>\n'
            f'<desc id="description">{escape(description)}</desc>\n'
            f'{rectangle(0.5, 0.5, width - 1, height - 1, PAPER, FAINT, 10)}\n{body}\n</svg>\n')
