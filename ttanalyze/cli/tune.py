"""The options of `ttanalyze tune`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ttanalyze.cli.common import (
    DeviceOption,
    JsonOption,
    ProcessOption,
    QuietOption,
    RunArgument,
    as_json,
    check_output,
    interruptible,
    print_text,
    progress_bar,
    write_file,
)
from ttanalyze.errors import Error
from ttanalyze.output import text

verbs = typer.Typer()

LONGEST = 1e6  # seconds for a configuration

TUNE_EXAMPLES = """\b
Examples:
  Blocks of 32 to 1024 threads, as many threads in all as were recorded:
    ttanalyze tune run1 --kernel saxpy -o saxpy.csv
  Blocks and grids of a kernel that strides through its data:
    ttanalyze tune run1 --kernel saxpy --blocks 64,128,256 --grids total,132,264 -o saxpy.csv
  Registers and optimisation, of a kernel with PTX:
    ttanalyze tune run1 --launch 1234 --maxregs 32,64,128 --opt-level 3,4 -o regs.csv
  Another implementation, whose sums may differ in the last bits:
    ttanalyze tune run1 --launch 1234 --code new.cu --blocks 128,256 --dtype f32 \\
        --tolerance ,,8 -o new.csv --chart new.html
  A large space, of which only a part is tried, mostly near what was fast:
    ttanalyze tune run1 --kernel gemm --blocks 16x16,32x8 --shared 0,16K,48K \\
        --search optuna --trials 100 -o gemm.csv
"""


def _list(value: str | None, option: str, parse: Callable[[str], Any]) -> list[Any] | None:
    """What is between commas. Raises Error with the option's name."""
    if value is None:
        return None
    try:
        return [parse(part) for part in value.split(",")]
    except (Error, ValueError) as e:
        raise Error(str(e) if option in str(e) else f"{option} {value}: {e}") from None


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not value.isdecimal() or not low <= int(value) <= high:
            raise Error(f"numbers from {low} to {high} are expected")
        return int(value)

    return parse


@verbs.command(epilog=TUNE_EXAMPLES)
def tune(
    run: RunArgument,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="A CSV file; what is in it is not tried again."
        ),
    ],
    kernel: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="The first launch of a kernel of such a name that can."),
    ] = None,
    launch: Annotated[
        int | None, typer.Option(metavar="N", help="Which launch, by the number of its call.")
    ] = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES", help="Blocks, such as 64,128,16x16 (default: 32 to 1024 threads)."
        ),
    ] = None,
    grids: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Grids: sizes, total (as many threads as recorded, the default with --blocks), "
            "recorded.",
        ),
    ] = None,
    shared: Annotated[
        str | None, typer.Option(metavar="SIZES", help="Dynamic shared memory, such as 0,16K.")
    ] = None,
    maxregs: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Registers of a thread at most, where there is PTX."),
    ] = None,
    opt_level: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Optimisation, 0 to 4, where there is PTX."),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(metavar="WHICH", help="What caches prefer: none, shared, l1, equal."),
    ] = None,
    code: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Code to try beside the recorded one, with a kernel of the same name and "
            "parameters: .ptx, .cubin, .fatbin, or .cu (needs NVRTC); may be given again.",
        ),
    ] = None,
    search: Annotated[
        str, typer.Option(metavar="HOW", help="grid (all, the default), random or optuna.")
    ] = "grid",
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", help="So many configurations at most (optuna: default 30)."),
    ] = None,
    times: Annotated[
        int, typer.Option(metavar="K", help="Launches that each is measured by.")
    ] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Of random and optuna.")] = 0,
    flush_l2: Annotated[
        bool, typer.Option("--flush-l2/--warm", help="Flush the L2 cache before each launch.")
    ] = False,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPES", help="What memory holds, as in `diff`, for --tolerance."),
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ABS,REL,ULP",
            help="What a result may differ by (default: by no byte); for one region "
            "REGION=ABS,REL,ULP; may be given again.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="For each configuration.")
    ] = 120.0,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a web page (.html; needs plotly).")
    ] = None,
    process: ProcessOption = 0,
    device: DeviceOption = 0,
    sim: Annotated[
        bool, typer.Option("--sim", help="On the simulator, whose times say little.")
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Try other launch configurations, compiler options or code for a recorded launch.

    Each from memory as the launch found it, in another process, which may crash or hang. Only
    what leaves the memory that was recorded counts. Every configuration is a line of a CSV file,
    written as soon as it is known: after an interrupt, the same command goes on.
    """
    from ttanalyze import options
    from ttanalyze.format import open_run
    from ttanalyze.verbs import tune as module
    from ttanalyze.verbs.tune.space import CACHES, parse_grid, parse_three

    if times < 1 or (trials is not None and trials < 1):
        raise Error("--times and --trials: at least 1 is expected")
    if not 0 < timeout < LONGEST:
        raise Error(f"--timeout {timeout:g}: seconds are expected, more than 0")
    if tolerance and dtype is None:
        raise Error("--tolerance needs --dtype")
    if chart is not None and chart.suffix != ".html":
        raise Error(f"--chart {chart}: a name that ends in .html is expected")
    check_output(out)
    check_output(chart)

    def parse_cache(value: str) -> str | None:
        if value not in CACHES:
            raise Error(f"{', '.join(CACHES)} are expected")
        return value

    axes = {
        "block": _list(blocks, "--blocks", lambda value: parse_three(value, "--blocks")),
        "grid": _list(grids, "--grids", parse_grid),
        "shared": _list(shared, "--shared", options.parse_size),
        "maxregs": _list(maxregs, "--maxregs", _number(1, 255)),
        "opt_level": _list(opt_level, "--opt-level", _number(0, 4)),
        "cache": _list(cache, "--cache", parse_cache),
    }
    found = module.find(open_run(run).process(process), launch, kernel)
    wish = module.Wish(
        search, trials, times, seed, flush_l2, dtype, tolerance or (), timeout, device, sim
    )
    with interruptible(), progress_bar("tuning", quiet) as progress:
        tuned = module.tune(found, out, wish, code or (), progress, **axes)
    if chart is not None:
        write_file(chart, module.chart_page(tuned))
    said = {"run": str(run), "file": str(out), **tuned.as_dict()}
    colour = text.colours_wanted(1)
    print_text(as_json(said) if json else module.tuned_text(tuned, colour))
