"""The keys of the terminal browser and their help texts."""

from __future__ import annotations

from textual.binding import Binding

NAMES = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "comma": ",",
    "full_stop": ".",
    "minus": "-",
    "plus": "+",
    "slash": "/",
    "question_mark": "?",
    "escape": "esc",
}
MOVING = (
    ("tab shift+tab", "next, previous part of the screen; or click on it"),
    ("arrows page home end", "move within it"),
)


def _key(keys: str, action: str, help_text: str, footer: str = "", shown: str = "") -> Binding:
    return Binding(
        keys, action, footer or help_text, bool(footer), shown or None, tooltip=help_text
    )


KEYS = [
    _key("question_mark,f1", "help", "these keys", "Help", "?"),
    _key("left_square_bracket,comma", "step(-1)", "one epoch back", "Back", "["),
    _key("right_square_bracket,full_stop", "step(1)", "one epoch forward", "Forward", "]"),
    _key(
        "left_curly_bracket,less_than_sign", "region_change(-1)", "back to where the region changed"
    ),
    _key(
        "right_curly_bracket,greater_than_sign",
        "region_change(1)",
        "forward to where the region changes",
        "Change",
        "}",
    ),
    _key(
        "left_parenthesis,minus",
        "item_change(-1)",
        "back to where the item under the cursor changed",
    ),
    _key(
        "right_parenthesis,plus",
        "item_change(1)",
        "forward to where the item under the cursor changes",
    ),
    _key("h", "past", "history of the item under the cursor: all its values", "History"),
    _key("v", "values", "these values beside the memory, or no longer"),
    _key("enter", "memory", "from a list to the memory"),
    _key("n", "not_finite(1)", "next NaN or infinity in the region"),
    _key("N", "not_finite(-1)", "previous NaN or infinity in the region"),
    _key("w", "new_not_finite", "forward to where new NaNs or infinities appear"),
    _key("t", "type(1)", "next type of items", "Type"),
    _key("T", "type(-1)", "previous type of items"),
    _key("d", "choose_type", "type of items by name"),
    _key("g", "go", "go to an epoch, region, offset or element", "Go"),
    _key("slash", "find", "find bytes, a value, a region or an epoch by name", "Find", "/"),
    _key("f", "find_again(1)", "find the next one"),
    _key("F", "find_again(-1)", "find the one before"),
    _key("c", "calls", "calls between this epoch and the one before", "Calls"),
    _key("m", "mark", "compare with this epoch instead of the one before, or no longer"),
    _key("a", "everything", "all regions, or those that live in this epoch"),
    _key("s", "sort", "regions by id, by how much they changed, by size"),
    _key("z", "zoom", "memory on the whole screen, or no longer"),
    _key("p", "process", "next process of the run"),
    _key("R", "reload", "reload the run, which may have grown"),
    _key("escape", "stop", "stop a search"),
    _key("ctrl+z", "suspend_process", "suspend; fg in the shell continues"),
    _key("q,ctrl+c", "quit", "quit", "Quit"),
]
