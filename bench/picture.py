"""picture: the rows that have a bar, as one SVG: what each reached of its bar, and the spread."""
from xml.sax.saxutils import escape

WIDTH, LABEL, LINE, TOP, BOTTOM = 960, 560, 22, 48, 34
LABEL_CHARACTERS = 62
MOST = 2.0  # times its bar; what is beyond goes to the edge
MET, MISSED, SPREAD, INK, FAINT = "#2e7d32", "#c62828", "#1a1a1a", "#1a1a1a", "#9e9e9e"


def reached(row, value):
    """1 is the bar, more is better."""
    return value / row["bar"] if row["better"] == "at_least" else row["bar"] / max(value, 1e-9)


def place(part):
    return LABEL + (WIDTH - LABEL - 20) * min(part, MOST) / MOST


def text(x, y, content, size=12, anchor="start", colour=INK):
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">'
        f'{escape(content)}</text>')


def line(x1, y1, x2, y2, colour, width=1, dash=""):
    return (f'<line x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}" stroke="{colour}" '
        f'stroke-width="{width}"{f" stroke-dasharray={chr(34)}{dash}{chr(34)}" if dash else ""}/>')


def bar_of(row, y):
    value = row.get("ratio", row["figure"])
    part = reached(row, value)
    sign = "≥" if row["better"] == "at_least" else "≤"
    unit = "" if "ratio" in row else f" {row['unit']}"
    label = f"{row['id']}  {row['what']}".replace("`", "")
    if len(label) > LABEL_CHARACTERS:
        label = label[:LABEL_CHARACTERS - 1] + "…"
    parts = [f"<title>{escape(row['id'] + ': ' + row['what'])}</title>",
        text(8, y + 14, label), text(LABEL - 8, y + 14,
            f"{value:.3g}{unit} ({sign} {row['bar']:g})", anchor="end"),
        f'<rect x="{LABEL}" y="{y + 3}" width="{place(part) - LABEL:.1f}" height="{LINE - 8}" '
        f'fill="{MET if part >= 1 else MISSED}" fill-opacity="0.75"/>']
    if "ratio_low" in row:
        low, high = sorted(place(reached(row, row[end])) for end in ("ratio_low", "ratio_high"))
        parts.append(line(low, y + LINE / 2 - 1, high, y + LINE / 2 - 1, SPREAD))
    return f"<g>{''.join(parts)}</g>"


def svg(report):
    """The report of bench/run as the text of a picture."""
    rows = [row for row in report["rows"] if "skipped" not in row and "bar" in row]
    height = TOP + LINE * len(rows) + BOTTOM
    machine = report["machine"]
    where = (f"{report['date']}, {machine['cores']} cores ({machine['cpu']}), commit "
        f"{machine['commit']}, load before {machine['load_before']:.1f}")
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(8, 20, "Once: what each benchmark reached of its bar", 15),
        text(8, 36, where, 10, colour="#555555")]
    for part, name in ((0.5, "half"), (1.0, "the bar"), (1.5, "1.5 ×")):
        parts.append(line(place(part), TOP, place(part), height - BOTTOM + 6,
            INK if part == 1.0 else FAINT, 1, "" if part == 1.0 else "3 3"))
        parts.append(text(place(part), height - BOTTOM + 20, name, 11, "middle"))
    parts += [bar_of(row, TOP + LINE * number) for number, row in enumerate(rows)]
    return "\n".join(parts + ["</svg>"]) + "\n"
