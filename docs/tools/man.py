"""Makes man pages from the help of the verbs: python -m docs.tools.man FOLDER."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import typer

from ttanalyze import __version__, options
from ttanalyze.cli import app
from ttanalyze.cli.help import GROUPS, is_argument, summary, usage


def escape(text: str) -> str:
    """Text as roff, which reads a line that begins with a dot or a quote as a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", text)
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.M)


def joined(text: str) -> str:
    return escape(" ".join(text.split()))


def heading(name: str, about: str) -> list[str]:
    made = f'.TH "{name.upper()}" 1 "" "ttanalyze {__version__}" "ttanalyze manual"'
    return [made, ".SH NAME", f"{escape(name)} \\- {joined(about).rstrip('.')}"]


def item(name: str, about: str) -> list[str]:
    return [".TP", f"\\fB{escape(name)}\\fR", joined(about)]


def option(parameter: Any) -> list[str]:
    value = f" {parameter.metavar}" if parameter.metavar else ""
    spelled = ", ".join([*sorted(parameter.opts, key=len), *parameter.secondary_opts]) + value
    of = options.TABLE.get(parameter.name)
    variable = f" Variable: {of.variable}." if of and of.help == parameter.help else ""
    return item(spelled, (parameter.help or "") + variable)


def verb_page(name: str, verb: Any) -> str:
    """The page of one verb."""
    out = heading(f"ttanalyze-{name}", summary(verb))
    out += [".SH SYNOPSIS", f"\\fBttanalyze {name}\\fR {escape(' '.join(usage(verb)))}"]
    out += [".SH DESCRIPTION"]
    for paragraph in (verb.help or "").split("\n\n"):
        out += [".PP", joined(paragraph)]
    out += [".SH OPTIONS"]
    for parameter in verb.params:
        told = item(parameter.metavar, parameter.help) if is_argument(parameter) else None
        out += told or option(parameter)
    examples = dedent(verb.epilog.replace("\b\n", "").partition("\n")[2]).rstrip()
    out += [".SH EXAMPLES", ".nf", escape(examples), ".fi", ".SH SEE ALSO", ".BR ttanalyze (1)"]
    return "\n".join(out) + "\n"


def main_page(group: Any) -> str:
    """The page of the command: its verbs, in the groups of the help."""
    out = heading("ttanalyze", group.help)
    out += [".SH SYNOPSIS", "\\fBttanalyze\\fR VERB [OPTIONS]"]
    for title, names in GROUPS.items():
        out += [f'.SH "{title.upper()}"']
        for name in names:
            out += item(f"ttanalyze-{name}(1)", summary(group.commands[name]))
    return "\n".join(out) + "\n"


def pages() -> dict[str, str]:
    """The pages by the names of their files."""
    group: Any = typer.main.get_command(app)
    made = {f"ttanalyze-{name}.1": verb_page(name, verb) for name, verb in group.commands.items()}
    return {"ttanalyze.1": main_page(group), **made}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in pages().items():
        (folder / file).write_text(content)
