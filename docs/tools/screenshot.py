"""Draws docs/demo.svg, which types commands of `ttanalyze demo` with their real output, and
docs/report.png, the top of a web page.

python -m docs.tools.screenshot runs both on the simulator; it needs `make examples` and Chromium. A
test compares the text of the first.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET, PAGE = ROOT / "docs" / "demo.svg", ROOT / "docs" / "report.png"
SHOWN = {  # lines of each command, in the first place where it stands
    "record": ".",
    "diff": r"^\$|^different|^first|^  differs|values|index|^possible|pointer|writes there",
    "blame": r"^\$|^nan|^not in|^region|^    call",
}
WIDTH, LINE, COLUMNS = 960, 17, 116
VARYING = re.compile(r"0x[0-9a-f]{8,}|thread \d+|\d+\.\d+ s\b|[0-9a-f]{16}")
STYLE = (
    "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre;opacity:0;"
    "animation:show 0.2s forwards}.command{fill:#a3e635;font-weight:bold}.about{fill:#8a93a6}"
    "@keyframes show{to{opacity:1}}@media(prefers-reduced-motion){text{opacity:1;animation:none}}"
)


def tour() -> str:
    """Returns what the tour prints, with short paths."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ttanalyze", "demo", "--sim", "-o", f"{folder}/demo"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return re.sub(r"/\S*/(?=vecadd|python|overflow\.py)", "", done.stdout).replace(f"{folder}/", "")


def chosen(printed: str) -> list[str]:
    """Returns lines of the first record, of diff and of blame."""
    out: list[str] = []
    wanted = dict(SHOWN)
    for step in re.split(r"^(?=# )", printed, flags=re.M)[1:]:
        about, *lines = step.strip().splitlines()
        pattern = wanted.pop(lines[0].split()[2], None)
        if pattern:
            out += [about, *(line for line in lines if re.search(pattern, line)), ""]
    return [line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…" for line in out[:-1]]


def svg(lines: list[str]) -> str:
    height = LINE * (len(lines) + 2)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">',
        "<title>ttanalyze records a program twice and names the first difference</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#1b1f2a"/>',
    ]
    seconds = 0.0
    for number, line in enumerate(lines):
        kind = {"#": "about", "$": "command"}.get(line[:1], "output")
        seconds += {"about": 0.8, "command": 0.8, "output": 0.08}[kind]
        out.append(
            f'<text x="16" y="{LINE * (number + 2) - 4}" class="{kind}" '
            f'style="animation-delay:{seconds:.2f}s">{html.escape(line)}</text>'
        )
    return "\n".join([*out, "</svg>\n"])


def texts(picture: str) -> list[str]:
    """Returns the lines of a picture without what varies."""
    found = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    return [VARYING.sub("", html.unescape(line)) for line in found]


def draw_page(target: Path) -> None:
    """Draws the top of the web page of a small training."""
    ttanalyze = [sys.executable, "-m", "ttanalyze"]
    options = ("--sim", "-q", "--params", "--timeline", "events", "--epoch", "launch")
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    browser += ["--window-size=900,1560", "--virtual-time-budget=20000", f"--screenshot={target}"]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples" / "build" / "training", folder)
        for command in (
            [*ttanalyze, "record", *options, "-o", "training.tt", "--", "./training"],
            [*ttanalyze, "report", "-q", "training.tt", "-o", "page.html"],
            [*browser, f"--user-data-dir={folder}/profile", Path(folder, "page.html").as_uri()],
        ):
            subprocess.run(command, cwd=folder, capture_output=True, check=True)


if __name__ == "__main__":
    TARGET.write_text(svg(chosen(tour())))
    draw_page(PAGE)
