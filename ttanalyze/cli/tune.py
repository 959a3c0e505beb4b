"""The options of `ttanalyze tune`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Option, Typer

from ttanalyze.cli import change_options, common, replay_options
from ttanalyze.errors import Error
from ttanalyze.output import text

verbs = Typer()

TUNE_EXAMPLES = """\b
Examples:
  Try blocks of 32 to 1024 threads, with the recorded number of threads:
    ttanalyze tune run1 --kernel saxpy -o saxpy.csv
  Try blocks and grids of a kernel with a grid-stride loop:
    ttanalyze tune run1 --kernel saxpy --blocks 64,128,256 --grids total,132,264 -o saxpy.csv
  Try register limits and optimisation levels of a kernel with PTX:
    ttanalyze tune run1 --launch 1234 --maxregs 32,64,128 --opt-level 3,4 -o regs.csv
  Try another implementation, and allow a difference in the last bits:
    ttanalyze tune run1 --launch 1234 --code new.cu --blocks 128,256 --dtype f32 \\
        --tolerance ,,8 -o new.csv --chart new.html
  Use four GPUs, with a condition on the configurations:
    ttanalyze tune run1 --kernel gemm --blocks 16x16,32x32 --maxregs 64,128 --device 0-3 \\
        --where "threads * maxregs <= 65536" -o gemm.csv
  Try a part of a large search space, mostly near fast configurations:
    ttanalyze tune run1 --kernel gemm --blocks 16x16,32x8 --shared 0,16K,48K \\
        --search optuna --trials 100 -o gemm.csv
"""


BlocksOption = Annotated[
    str | None,
    Option(metavar="SIZES", help="Block sizes: 64,128,16x16 ... (default: 32 to 1024 threads)."),
]
GridsOption = Annotated[
    str | None,
    Option(
        metavar="SIZES",
        help="Grid sizes: numbers, recorded, or total (the recorded number of threads; default "
        "with --blocks).",
    ),
]
MaxregsOption = Annotated[
    str | None, Option(metavar="NUMBERS", help="Register limits per thread; needs PTX.")
]
OptLevelOption = Annotated[
    str | None, Option(metavar="NUMBERS", help="Optimisation levels, 0 to 4; needs PTX.")
]
CacheOption = Annotated[
    str | None, Option(metavar="WHICH", help="Cache preferences: none, shared, l1, equal.")
]
BoundsOption = Annotated[
    str | None,
    Option(
        metavar="LIST",
        help="Launch bounds: most threads of a block, and least blocks per multiprocessor: "
        "128,256/2 ...; needs PTX.",
    ),
]
SpecializeOption = Annotated[
    str | None,
    Option(
        metavar="WHAT",
        help="What becomes constants of the code: none, args (arguments), dims (sizes of block and "
        "grid), all; needs PTX.",
    ),
]
CodeOption = Annotated[
    list[Path] | None,
    Option(
        metavar="FILE",
        help="Other code to try, with a kernel of the same name and parameters: .ptx, .cubin, "
        ".fatbin, .cu (needs NVRTC), .ll or .bc (LLVM IR; needs NVVM); repeatable.",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    Option(
        metavar="CONDITION",
        help="Try only configurations for which this holds, such as 'threads <= 256 and "
        "shared > 0'; repeatable. Columns: grid_x, block_x ..., blocks, threads, shared, maxregs, "
        "opt_level, cache, code, max_threads, min_blocks, specialize.",
    ),
]
TrialsOption = Annotated[
    int | None,
    Option(metavar="N", help="Largest number of configurations (optuna: default 30).", min=1),
]


ChartOption = Annotated[
    Path | None, Option(metavar="FILE", help="Write a chart as a web page (.html; needs plotly).")
]


SharedOption = Annotated[
    str | None, Option(metavar="SIZES", help="Bytes of dynamic shared memory: 0,16K ...")
]
FlushL2Option = Annotated[
    bool, Option("--flush-l2/--warm", help="Flush the L2 cache before each launch.")
]
TimesOption = Annotated[
    int, Option(metavar="K", help="Number of measured launches of each configuration.", min=1)
]


SearchOption = Annotated[
    str,
    Option(
        metavar="HOW",
        help="grid (all configurations), random, optuna (near fast ones), or auto (default: optuna "
        "if it is installed and there are more configurations than --trials; else grid).",
    ),
]


def _list(value: str | None, option: str, parse: Callable[[str], Any]) -> list[Any] | None:
    """Parses a list separated by commas. Raises Error with the name of the option."""
    if value is None:
        return None
    try:
        return [parse(part) for part in value.split(",")]
    except (Error, ValueError) as e:
        raise Error(str(e) if option in str(e) else f"{option} {value}: {e}") from None


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not value.isdecimal() or not low <= int(value) <= high:
            raise Error(f"must be numbers from {low} to {high}")
        return int(value)

    return parse


def _axes(
    blocks: str | None,
    grids: str | None,
    shared: str | None,
    maxregs: str | None,
    opt_level: str | None,
    cache: str | None,
    launch_bounds: str | None,
    specialize: str | None,
) -> dict[str, list[Any] | None]:
    """What is to be tried of each, by its name in the table."""
    from ttanalyze import options
    from ttanalyze.verbs.replay.changes import parse_bounds, parse_three
    from ttanalyze.verbs.tune.space import CACHES, parse_grid

    def parse_cache(value: str) -> str | None:
        if value not in CACHES:
            raise Error(f"must be one of {', '.join(CACHES)}")
        return value

    def parse_specialize(value: str) -> str | None:
        return None if change_options.parse_specialize(value) == "none" else value

    return {
        "block": _list(blocks, "--blocks", lambda value: parse_three(value, "--blocks")),
        "grid": _list(grids, "--grids", parse_grid),
        "shared": _list(shared, "--shared", options.parse_size),
        "maxregs": _list(maxregs, "--maxregs", _number(1, 255)),
        "opt_level": _list(opt_level, "--opt-level", _number(0, 4)),
        "cache": _list(cache, "--cache", parse_cache),
        "launch_bounds": _list(launch_bounds, "--launch-bounds", parse_bounds),
        "specialize": _list(specialize, "--specialize", parse_specialize),
    }


def _check_files(out: Path, chart: Path | None) -> None:
    if chart is not None and chart.suffix != ".html":
        raise Error(f"--chart {chart}: the name must end in .html")
    common.check_output(out)
    common.check_output(chart)


@verbs.command(epilog=TUNE_EXAMPLES)
def tune(
    run: common.RunArgument,
    out: Path = Option(
        ...,
        "--out",
        "-o",
        metavar="FILE",
        help="The CSV file to write. Skips configurations that the file has.",
    ),
    kernel: replay_options.OneKernelOption = None,
    launch: replay_options.OneLaunchOption = None,
    blocks: BlocksOption = None,
    grids: GridsOption = None,
    shared: SharedOption = None,
    maxregs: MaxregsOption = None,
    opt_level: OptLevelOption = None,
    cache: CacheOption = None,
    launch_bounds: BoundsOption = None,
    specialize: SpecializeOption = None,
    code: CodeOption = None,
    search: SearchOption = "auto",
    where: WhereOption = None,
    trials: TrialsOption = None,
    times: TimesOption = 20,
    seed: int = Option(0, metavar="N", help="Random seed of random and optuna."),
    flush_l2: FlushL2Option = False,
    dtype: replay_options.DtypeOption = None,
    tolerance: replay_options.ToleranceOption = None,
    timeout: str = Option(
        "2m", metavar="TIME", help="Time limit of each configuration, such as 90s."
    ),
    chart: ChartOption = None,
    process: common.ProcessOption = 0,
    rank: common.RankOption = None,
    device: str = Option("0", metavar="LIST", help="GPUs to use at the same time: 0,1 or 0-3."),
    sim: bool = Option(False, "--sim", help="Use the simulator. Its times are not those of a GPU."),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Try other launch configurations, compiler options or code for a recorded launch.

    Each configuration runs in a process of its own, from the recorded memory. It may crash or
    hang. A configuration is valid only if its result equals the recorded one. The verb writes one
    line per configuration to a CSV file at once. After an interrupt, the same command resumes.
    """
    from ttanalyze import options
    from ttanalyze.format import open_run
    from ttanalyze.verbs.tune.show import chart_page, tuned_text
    from ttanalyze.verbs.tune.tune import Wish
    from ttanalyze.verbs.tune.tune import tune as run_tune

    longest = options.parse_limit("--timeout", timeout)
    if not longest:
        raise Error(f"--timeout {timeout}: must be more than 0 seconds")
    if tolerance and dtype is None:
        raise Error("--tolerance needs --dtype")
    _check_files(out, chart)
    devices = options.parse_numbers(device, "--device")

    axes = _axes(blocks, grids, shared, maxregs, opt_level, cache, launch_bounds, specialize)
    wish = Wish(
        search,
        trials,
        times,
        seed,
        flush_l2,
        dtype,
        tolerance or (),
        longest,
        devices,
        sim,
        where or (),
    )
    opened = open_run(run).process(process, rank)
    with common.interruptible(), common.progress_bar("tuning", quiet) as progress:
        tuned = run_tune(opened, out, wish, launch, kernel, code or (), progress, **axes)
    if chart is not None:
        common.write_file(chart, chart_page(tuned))
    answer = {"run": str(run), "file": str(out), **tuned.as_dict()}
    colour = text.colours_wanted(1)
    common.print_text(common.as_json(answer) if json else tuned_text(tuned, colour))
