"""Draws the pictures of docs/concepts.md: python -m docs.tools.pictures."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "concepts"
WIDTH = 640
PLAIN, CHANGED, OURS = "#eef1f5", "#ffc857", "#b9dcff"


class Picture:
    """Boxes, arrows and words, in pixels from the top left."""

    def __init__(self, height: int, title: str) -> None:
        self.height, self.parts = height, [f"<title>{title}</title>"]

    def box(self, x: int, y: int, width: int, height: int, words: str, fill: str = PLAIN) -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{fill}" '
            'stroke="#445"/>'
        )
        self.words(x + width // 2, y + height // 2 + 5, words)

    def words(self, x: int, y: int, words: str, anchor: str = "middle") -> None:
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>')

    def line(self, *points: tuple[int, int], arrow: bool = True, dashed: bool = False) -> None:
        path = " ".join(f"{x},{y}" for x, y in points)
        style = (' marker-end="url(#head)"' if arrow else "") + (
            ' stroke-dasharray="5 4"' if dashed else ""
        )
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="#445"{style}/>')

    def svg(self) -> str:
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
                f'width="{WIDTH}" height="{self.height}" font-family="sans-serif" font-size="13">',
                '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
                'markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#445"/>'
                "</marker></defs>",
                f'<rect width="{WIDTH}" height="{self.height}" rx="6" fill="white"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def epoch() -> Picture:
    p = Picture(140, "Launches run between epochs; each epoch is the memory at one moment")
    p.line((20, 45), (620, 45))
    for x, name in ((40, "copy"), (115, "add"), (270, "add"), (345, "scale"), (500, "add")):
        p.box(x, 30, 65, 30, name)
    for number, x in enumerate((220, 450, 585)):
        p.line((x, 20), (x, 85), arrow=False, dashed=True)
        p.box(x - 38, 88, 76, 30, f"epoch {number}", OURS)
    p.words(20, 108, "memory at", "start")
    return p


def region() -> Picture:
    p = Picture(160, "Three regions: an address that is used again is a new region")
    p.line((40, 140), (620, 140))
    p.words(620, 157, "time", "end")
    p.line((40, 140), (40, 15))
    p.words(48, 20, "address", "start")
    p.box(60, 90, 220, 34, "region 0")
    p.box(120, 38, 480, 34, "region 1")
    p.box(360, 90, 200, 34, "region 2", CHANGED)
    p.words(320, 112, "freed")
    return p


def block() -> Picture:
    p = Picture(130, "A region is cut into blocks of 64 KiB; only changed blocks are stored")
    p.words(20, 30, "a region of 300 KiB", "start")
    for number in range(5):
        width = 120 if number < 4 else 82
        words = f"block {number}" + (", changed" if number == 2 else "")
        p.box(20 + 120 * number, 42, width, 34, words, CHANGED if number == 2 else PLAIN)
    p.words(80, 96, "64 KiB")
    p.words(541, 96, "44 KiB")
    p.line((320, 76), (320, 102))
    p.words(320, 120, "stored in this epoch")
    return p


def digest() -> Picture:
    p = Picture(170, "The digests of blocks are hashed into the digest of the region")
    for number, value in enumerate(("3f86b8e1…", "9c04d75a…", "d1e2077b…")):
        x = 40 + 200 * number
        p.box(x, 15, 160, 30, f"block {number}: 65,536 bytes")
        p.line((x + 80, 45), (x + 80, 68))
        p.box(x, 70, 160, 30, value, OURS)
        p.line((x + 80, 100), (320 + 30 * (number - 1), 128))
    p.box(220, 130, 200, 30, "region: acdb5494…", CHANGED)
    return p


def ring() -> Picture:
    p = Picture(150, "The GPU writes epochs into the ring; the drain thread writes them to disk")
    p.box(15, 50, 120, 44, "capture (GPU)", OURS)
    p.line((135, 72), (173, 72))
    for number, words in enumerate(("epoch 7", "epoch 8", "epoch 9", "free")):
        fill = PLAIN if words == "free" else CHANGED
        p.box(175 + 70 * number, 50, 70, 44, words, fill)
    p.words(315, 38, "ring, in device memory")
    p.line((440, 94), (440, 120), (190, 120), (190, 96), dashed=True)
    p.words(315, 140, "used again")
    p.line((455, 72), (483, 72))
    p.box(485, 50, 70, 44, "drain", OURS)
    p.line((555, 72), (578, 72))
    p.box(580, 50, 50, 44, "disk")
    return p


def gate() -> Picture:
    p = Picture(150, "Threads that submit work pass the gate; it is closed while an epoch is cut")
    for x, words, opened in ((20, "open: work goes to the GPU", True), (340, "", False)):
        for number in range(2):
            p.box(x, 45 + 45 * number, 80, 30, f"thread {number}")
            end = x + 210 if opened else x + 128
            p.line((x + 80, 60 + 45 * number), (end, 60 + 45 * number))
        if opened:
            p.line((x + 130, 30), (x + 130, 45), arrow=False)
            p.line((x + 130, 122), (x + 130, 137), arrow=False)
            p.box(x + 212, 45, 50, 75, "GPU")
        else:
            p.line((x + 132, 30), (x + 132, 137), arrow=False)
            p.box(x + 140, 68, 130, 30, "an epoch is cut", OURS)
        p.words(x, 20, words or "closed: threads wait", "start")
    return p


PICTURES = {f.__name__: f for f in (epoch, region, block, digest, ring, gate)}


def pages() -> dict[Path, str]:
    """What the files are to hold."""
    return {FOLDER / f"{name}.svg": draw().svg() for name, draw in PICTURES.items()}


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content)
