"""Pictures of pages, drawn by Chromium at a quarter of their size, and compared roughly.

`python -m tests.pictures` draws those of tests/data/pictures again: look at them before a commit.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tests.rundir import small_run
from ttanalyze.format import open_run
from ttanalyze.verbs.report import report

FOLDER = Path(__file__).parent / "data" / "pictures"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
SCALE, TILE = 0.25, 5  # TILE: pixels of the picture, whose mean is compared
HEIGHTS = {"400": 7000, "900": 4400, "1700": 3600, "print": 5000, "dark": 4400}  # by width
WIDTHS = {"print": 1000, "dark": 900}  # of those that are named otherwise
DARK = 'matchMedia("(prefers-color-scheme: dark)")', "{ matches: true, addEventListener() {} }"


def draw(page: Path, width: int, height: int, target: Path) -> None:
    """Draws a page. It is in a frame, because windows have a least width."""
    frame = page.with_suffix(".frame.html")
    style = (
        f"border:0;width:{width}px;height:{height}px;transform-origin:0 0;transform:scale({SCALE})"
    )
    body = '<body style="margin:0;overflow:hidden">'
    frame.write_text(f'{body}<iframe src="{page.name}" style="{style}"></iframe>')
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size=500,{int(height * SCALE)}"]
    command += ["--virtual-time-budget=20000", f"--user-data-dir={page.parent / 'profile'}"]
    command += [f"--screenshot={target}", frame.as_uri()]
    subprocess.run(command, capture_output=True, check=True, timeout=100)


def draw_report(folder: Path, size: str, target: Path) -> None:
    """Draws the report of two runs that differ: at a width, as it is printed, or dark."""
    for name, byte in (("run1", b"?"), ("run2", b"!")):
        w = small_run(folder / name)
        w.write(1, 0, byte)
        w.epoch("sync")
        w.close(argv=["./train", "--steps", "5"])
    text = report(open_run(folder / "run1"), open_run(folder / "run2"))
    text = text.replace(f"{folder}/", "")
    page = folder / "page.html"
    changes = {"print": ("@media print", "@media all"), "dark": DARK}
    page.write_text(text.replace(*changes[size]) if size in changes else text)
    draw(page, WIDTHS[size] if size in WIDTHS else int(size), HEIGHTS[size], target)


def read_png(path: Path) -> Any:
    """Returns a picture of 8 bits per channel as an array: row, column, channel."""
    data, at, packed, head = path.read_bytes(), 8, b"", (0, 0, 0)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            head = (*struct.unpack(">IIBB", body[:10])[:2], body[9])
        packed += body if kind == b"IDAT" else b""
        at += length + 12
    width, height, color = head
    pixel = {0: 1, 2: 3, 6: 4}[color]
    raw = np.frombuffer(zlib.decompress(packed), "u1").reshape(height, width * pixel + 1)
    rows = np.zeros((height + 1, width * pixel), "i4")
    for i, line in enumerate(raw.astype("i4")):
        rows[i + 1] = _unfiltered(int(line[0]), line[1:], rows[i], pixel)
    return rows[1:].reshape(height, width, pixel)


def _unfiltered(kind: int, line: Any, above: Any, pixel: int) -> Any:
    """Undoes the filter of a line. pixel: values of a pixel."""
    if kind in (0, 2):
        return (line + above if kind else line) & 255
    if kind == 1:
        return np.cumsum(line.reshape(-1, pixel), axis=0).reshape(-1) & 255
    out, up = [0] * pixel, [*[0] * pixel, *above.tolist()]
    for x, value in enumerate(line.tolist()):
        left, over, corner = out[x], up[x + pixel], up[x]
        if kind == 3:
            out.append((value + (left + over) // 2) & 255)
            continue
        a, b, c = abs(over - corner), abs(left - corner), abs(left + over - 2 * corner)
        nearest = left if a <= b and a <= c else over if b <= c else corner
        out.append((value + nearest) & 255)
    return out[pixel:]


def tiles(picture: Any) -> Any:
    """Returns the mean brightness of each tile."""
    grey = picture[..., :3].mean(axis=2)
    rows, columns = grey.shape[0] // TILE, grey.shape[1] // TILE
    whole = grey[: rows * TILE, : columns * TILE]
    return whole.reshape(rows, TILE, columns, TILE).mean(axis=(1, 3))


def difference(one: Path, other: Path) -> tuple[float, float]:
    """Returns by how much the brightness of tiles differs on average, of 255, and the share of
    tiles that differ clearly. Fonts and versions of the browser make a little.
    """
    a, b = tiles(read_png(one)), tiles(read_png(other))
    assert a.shape == b.shape
    apart = np.abs(a - b)
    return float(apart.mean()), float((apart > 24).mean())


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for size in HEIGHTS:
        with tempfile.TemporaryDirectory() as folder:
            draw_report(Path(folder), size, FOLDER / f"report-{size}.png")


if __name__ == "__main__":
    main()
