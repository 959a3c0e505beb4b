"""The style sheet.

Blue, orange and yellow are distinct for all eyes. Important text is also bold, underlined or
inverted, so it shows without colours.
"""

from __future__ import annotations

from textual.theme import Theme

THEME = Theme(
    "ttanalyze",
    primary="#56b4e9",
    secondary="#8fa9bf",
    accent="#56b4e9",
    warning="#e69f00",
    error="#ff8f70",
    foreground="#d8dee6",
    background="#10151c",
    surface="#10151c",
    panel="#1d2733",
)

STYLE = """
Screen { layers: base; }
#top { height: 1; background: $panel; color: $primary; text-style: bold; }
#lists { height: 2fr; min-height: 5; }
#epochs { width: 1fr; }
#regions { width: 1fr; border-left: tall $panel; }
.wide #epochs { width: 2fr; }
.wide #regions { width: 3fr; }
#below { height: 3fr; min-height: 4; }
#memory { height: 100%; }
#past { height: 100%; width: 1fr; border-left: tall $panel; }
#position { height: 1; background: $panel; }
#last { height: 1; }
#calls { height: 1; width: 1fr; background: $panel; color: $secondary; }
#calls.told { color: $warning; text-style: bold; }
Prompt { background: $panel; }

Listing { background: $background; scrollbar-background: $background; scrollbar-color: $panel; }
.rows--title { background: $panel; color: $secondary; }
.rows--focused { color: $primary; text-style: bold; }
.rows--cursor { text-style: reverse; }
.rows--away { background: $panel; text-style: bold; }
.rows--changed { color: $warning; text-style: bold; }
.rows--maybe { color: $warning; }
.rows--caller { color: $accent; }
.rows--faint { color: $secondary; text-style: dim; }
.rows--wrong { color: $error; text-style: bold; }
.rows--offset { color: $secondary; }
.rows--odd { color: $error; text-style: bold italic; }
View > .rows--changed { text-style: bold underline; }
View > .rows--away { background: $background; text-style: underline; }
Overlay { background: $background; }
Help #help { padding: 1 2; }
Overlay Static#over { height: 1; background: $panel; color: $primary; text-style: bold; }
Overlay Rows { height: 1fr; }
Overlay Static#whole { height: auto; max-height: 6; background: $panel; color: $foreground; }
"""
