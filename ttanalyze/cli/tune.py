"""The options of `ttanalyze tune`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Option, Typer

from ttanalyze.cli import common, replay_options
from ttanalyze.errors import Error
from ttanalyze.output import text

verbs = Typer()

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


BlocksOption = Annotated[
    str | None,
    Option(metavar="SIZES", help="Blocks, such as 64,128,16x16 (default: 32 to 1024 threads)."),
]
GridsOption = Annotated[
    str | None,
    Option(
        metavar="SIZES",
        help="Grids: sizes, total (as many threads as recorded, the default with --blocks), "
        "recorded.",
    ),
]
MaxregsOption = Annotated[
    str | None, Option(metavar="NUMBERS", help="Registers of a thread at most, where there is PTX.")
]
OptLevelOption = Annotated[
    str | None, Option(metavar="NUMBERS", help="Optimisation, 0 to 4, where there is PTX.")
]
CacheOption = Annotated[
    str | None, Option(metavar="WHICH", help="What caches prefer: none, shared, l1, equal.")
]
CodeOption = Annotated[
    list[Path] | None,
    Option(
        metavar="FILE",
        help="Code to try beside the recorded one, with a kernel of the same name and "
        "parameters: .ptx, .cubin, .fatbin, or .cu (needs NVRTC); may be given again.",
    ),
]
TrialsOption = Annotated[
    int | None,
    Option(metavar="N", help="So many configurations at most (optuna: default 30).", min=1),
]


ChartOption = Annotated[
    Path | None, Option(metavar="FILE", help="Draw a web page (.html; needs plotly).")
]


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


def _axes(
    blocks: str | None,
    grids: str | None,
    shared: str | None,
    maxregs: str | None,
    opt_level: str | None,
    cache: str | None,
) -> dict[str, list[Any] | None]:
    """What is to be tried of each, by its name in the table."""
    from ttanalyze import options
    from ttanalyze.verbs.tune.space import CACHES, parse_grid, parse_three

    def parse_cache(value: str) -> str | None:
        if value not in CACHES:
            raise Error(f"{', '.join(CACHES)} are expected")
        return value

    return {
        "block": _list(blocks, "--blocks", lambda value: parse_three(value, "--blocks")),
        "grid": _list(grids, "--grids", parse_grid),
        "shared": _list(shared, "--shared", options.parse_size),
        "maxregs": _list(maxregs, "--maxregs", _number(1, 255)),
        "opt_level": _list(opt_level, "--opt-level", _number(0, 4)),
        "cache": _list(cache, "--cache", parse_cache),
    }


def _check_files(out: Path, chart: Path | None) -> None:
    if chart is not None and chart.suffix != ".html":
        raise Error(f"--chart {chart}: a name that ends in .html is expected")
    common.check_output(out)
    common.check_output(chart)


@verbs.command(epilog=TUNE_EXAMPLES)
def tune(
    run: common.RunArgument,
    out: Path = Option(
        ..., "--out", "-o", metavar="FILE", help="A CSV file; what is in it is not tried again."
    ),
    kernel: replay_options.OneKernelOption = None,
    launch: replay_options.OneLaunchOption = None,
    blocks: BlocksOption = None,
    grids: GridsOption = None,
    shared: str | None = Option(
        None, metavar="SIZES", help="Dynamic shared memory, such as 0,16K."
    ),
    maxregs: MaxregsOption = None,
    opt_level: OptLevelOption = None,
    cache: CacheOption = None,
    code: CodeOption = None,
    search: str = Option("grid", metavar="HOW", help="grid (all, the default), random or optuna."),
    trials: TrialsOption = None,
    times: int = Option(20, metavar="K", help="Launches that each is measured by.", min=1),
    seed: int = Option(0, metavar="N", help="Of random and optuna."),
    flush_l2: bool = Option(
        False, "--flush-l2/--warm", help="Flush the L2 cache before each launch."
    ),
    dtype: replay_options.DtypeOption = None,
    tolerance: replay_options.ToleranceOption = None,
    timeout: float = Option(120.0, metavar="SECONDS", help="For each configuration."),
    chart: ChartOption = None,
    process: common.ProcessOption = 0,
    device: common.DeviceOption = 0,
    sim: bool = Option(False, "--sim", help="On the simulator, whose times say little."),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Try other launch configurations, compiler options or code for a recorded launch.

    Each from memory as the launch found it, in another process, which may crash or hang. Only
    what leaves the memory that was recorded counts. Every configuration is a line of a CSV file,
    written as soon as it is known: after an interrupt, the same command goes on.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs import tune as module

    if not 0 < timeout < LONGEST:
        raise Error(f"--timeout {timeout:g}: seconds are expected, more than 0")
    if tolerance and dtype is None:
        raise Error("--tolerance needs --dtype")
    _check_files(out, chart)

    axes = _axes(blocks, grids, shared, maxregs, opt_level, cache)
    found = module.find(open_run(run).process(process), launch, kernel)
    wish = module.Wish(
        search, trials, times, seed, flush_l2, dtype, tolerance or (), timeout, device, sim
    )
    with common.interruptible(), common.progress_bar("tuning", quiet) as progress:
        tuned = module.tune(found, out, wish, code or (), progress, **axes)
    if chart is not None:
        common.write_file(chart, module.chart_page(tuned))
    said = {"run": str(run), "file": str(out), **tuned.as_dict()}
    colour = text.colours_wanted(1)
    common.print_text(common.as_json(said) if json else module.tuned_text(tuned, colour))
