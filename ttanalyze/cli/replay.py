"""The options of `ttanalyze replay`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context, Option, Typer

from ttanalyze import options
from ttanalyze.cli import change_options, common, record_options, replay_options
from ttanalyze.errors import Error, system_errors
from ttanalyze.output import text
from ttanalyze.util.own_process import own_command

if TYPE_CHECKING:
    from ttanalyze.format.process import Process
    from ttanalyze.gpu import Device
    from ttanalyze.verbs.retrace import Retraced

verbs = Typer()

REPLAY_EXAMPLES = """\b
Examples:
  Record for replay, then replay all kept launches, or those of one kernel:
    ttanalyze record --replayable -o run1 -- python train.py
    ttanalyze replay run1
    ttanalyze replay run1 --kernel softmax
  Measure one launch 100 times, and flush the L2 cache before each time:
    ttanalyze replay run1 --launch 1234 --times 100 --flush-l2
  Replay all GPU work up to epoch 12, and compare memory at every epoch:
    ttanalyze replay run1 --from 0 --to 12
  Allow a difference in the last bits, and a larger one in one region:
    ttanalyze replay run1 --launch 1234 --dtype f32 --tolerance ,,4 --tolerance grad=1e-3
  Run a launch that crashes its program again, in a checker:
    ttanalyze record --replayable --crash-safe --max-per-kernel 0 -o run1 -- ./program
    ttanalyze replay run1 --launch 1234 --under compute-sanitizer
  Trace what the instructions of one launch do, and look for wrong accesses:
    ttanalyze replay run1 --launch 1234 --instrument values -o run2
    ttanalyze query run2 --table trace --head 20
    ttanalyze memcheck run2
  Try another block size, a register limit, or edited code; the result must be the same:
    ttanalyze replay run1 --launch 1234 --block 256 --grid 512 --maxregs 64 --times 100
    ttanalyze replay run1 --launch 1234 --dump-ir kernel.ptx
    ttanalyze replay run1 --launch 1234 --code kernel.ptx --times 100
  Run one launch of a large program in a profiler, a checker or a debugger:
    ttanalyze replay run1 --launch 1234 --under "ncu --set full"
    ttanalyze replay run1 --launch 1234 --under "compute-sanitizer --tool racecheck"
    ttanalyze replay run1 --launch 1234 --under "cuda-gdb --args"
"""


FirstOption = Annotated[
    int | None,
    Option(
        "--from",
        metavar="E1",
        help="Replay all work from this epoch to --to, or to the last epoch.",
    ),
]
LastOption = Annotated[
    int | None,
    Option("--to", metavar="E2", help="Replay up to this epoch; compare memory at each epoch."),
]


UnderOption = Annotated[
    str | None,
    Option(metavar="COMMAND", help="Run under a tool: ncu, compute-sanitizer, cuda-gdb --args ..."),
]


InstrumentOption = Annotated[
    str | None,
    Option(
        metavar="KINDS",
        help="Trace the launch, and write a run with the trace. Kinds of records as for the verb "
        "`instrument --kind`: opcode, registers, addresses, values, tma, count.",
    ),
]
OutOption = Annotated[
    Path | None,
    Option("--out", "-o", metavar="DIR", help="The run with the trace (default RUN-launchN.tt)."),
]
ForceOption = Annotated[bool, Option("--force", "-f", help="Replace an existing run.")]
CHANGES = ("grid", "block", "shared", "launch_bounds", "maxregs", "specialize", "code", "dump_ir")
FILTERS = ("instructions", "category", "blocks", "addresses", "max_records", "ring_bytes")


@verbs.command(epilog=REPLAY_EXAMPLES)
@record_options.tracing_options(*FILTERS)
def replay(
    context: Context,
    run: common.RunArgument,
    launch: replay_options.LaunchOption = None,
    kernel: replay_options.KernelOption = None,
    first: FirstOption = None,
    last: LastOption = None,
    times: int = Option(
        0, metavar="K", min=0, help="Measure K runs; restore the input before each run."
    ),
    verify: bool = Option(True, help="Compare the result with the recording."),
    flush_l2: bool = Option(
        False, "--flush-l2/--warm", help="Flush the L2 cache before each measured run."
    ),
    dtype: replay_options.DtypeOption = None,
    tolerance: replay_options.ToleranceOption = None,
    under: UnderOption = None,
    alone: bool = Option(
        False, "--alone", help="Launch no kernel except the recorded one; --under sets this."
    ),
    instrument: InstrumentOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    grid: change_options.GridOption = None,
    block: change_options.BlockOption = None,
    shared: change_options.SharedOption = None,
    launch_bounds: change_options.BoundsOption = None,
    maxregs: change_options.MaxregsOption = None,
    specialize: change_options.SpecializeOption = None,
    code: change_options.CodeOption = None,
    dump_ir: change_options.DumpOption = None,
    *,
    traced: dict[str, object],
    process: common.ProcessOption = 0,
    rank: common.RankOption = None,
    device: common.DeviceOption = 0,
    sim: replay_options.SimOption = False,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Replay recorded launches one by one, or all work between two epochs.

    The verb restores the memory at its recorded addresses, loads the module and launches the
    kernel with its recorded parameters. Then it compares the result with the recording. Exit
    status 0: the same; 1: different; 2: nothing was compared, a launch failed, or the recording
    failed too early.

    With --instrument, the verb also writes a run with a trace of the one launch, which the table
    `trace` of `query`, `memcheck`, `race --exact` and `compare` read. The exit status is also 2
    if the launch was not traced.
    """
    _check_tracing(context, instrument, launch)
    _check_changes(context, launch)
    sizes = grid, block, shared, launch_bounds, maxregs, specialize
    change = change_options.parse_change(*sizes)
    of_span = first is not None or last is not None
    if (launch is not None) + (kernel is not None) + of_span > 1:
        raise Error("--launch, --kernel and --from/--to cannot be combined")
    if of_span and (times or flush_l2 or alone or under or not verify):
        raise Error("--from and --to can be combined only with --dtype and --tolerance")
    if flush_l2 and not times:
        raise Error("--flush-l2 needs --times")
    if under is not None:
        _run_under(under)
    from ttanalyze.format import open_run
    from ttanalyze.verbs.replay import run as module
    from ttanalyze.verbs.replay import show

    of = open_run(run).process(process, rank)
    if dump_ir is not None and launch:
        return change_options.dump(of, launch[0], dump_ir, json)
    types, allowed = replay_options.parse_types_of(of, dtype, tolerance)
    if instrument is not None and launch:
        more = _repeated(context)
        given = traced | {"instrument": instrument}
        return _replay_traced(of, launch[0], given, out, more, sim=sim, force=force, json=json)
    opener = replay_options.device_opener(device, sim)
    if of_span:
        return _replay_span(run, of, (first, last), (types, allowed), opener, json, quiet)
    seqs, others = replay_options.find_launches(of, launch, kernel)
    other = change_options.parse_code(code, opener)
    options = module.ReplayOptions(verify, times, flush_l2, types, allowed, alone, change, other)
    with common.progress_bar("replaying", quiet) as progress:
        found = module.replay(of, seqs, options, opener, progress)
    if len(found) == 1:
        shown = show.outcome_text(found[0], text.colours_wanted(1))
    else:
        shown = show.outcomes_text(found, text.colours_wanted(1), common.screen_width())
    failed = replay_options.tell_launches(run, of, found, others, shown, json)
    return status(found, wanted=verify, lacks=failed and launch is None)


def _replay_span(
    run: Path,
    of: Process,
    bounds: tuple[int | None, int | None],
    compared: tuple[Any, Any],
    opener: Callable[[], Device],
    json: bool,
    quiet: bool,
) -> int:
    from ttanalyze.verbs.replay import show
    from ttanalyze.verbs.replay.run import REFUSED
    from ttanalyze.verbs.replay.spans import replay_span

    with common.progress_bar("replaying", quiet) as progress:
        found = replay_span(of, *bounds, *compared, opener, progress)
    if json:
        answer = {
            "run": str(run),
            "process": of.index,
            "stretches": [one.as_dict() for one in found],
        }
        common.print_text(common.as_json(answer | {"failure": of.failure}))
    else:
        width = common.screen_width()
        common.print_text(show.stretches_text(found, text.colours_wanted(1), width))
        for line in show.stretch_reasons(one for one in found if one.status == REFUSED):
            common.say(line)
    lacks = bounds[1] is None and replay_options.say_failure(of, json)
    return status(found, lacks=lacks)


def _given(context: Context) -> dict[str, str]:
    """Returns the options of the command line, as they are written there, by parameter."""
    return {
        option.name or "": option.opts[0]
        for option in context.command.params
        if (source := context.get_parameter_source(option.name or "")) is not None
        and source.name == "COMMANDLINE"
    }


def _check_changes(context: Context, launch: list[int] | None) -> None:
    """Raises Error if a launch is changed and it is not one."""
    given = _given(context)
    for name in CHANGES:
        if name in given and (not launch or len(launch) > 1):
            raise Error(f"{given[name]} needs one launch: --launch N")
        if name in given and "instrument" in given:
            raise Error(f"{given[name]} cannot be combined with --instrument")


def _check_tracing(context: Context, instrument: str | None, launch: list[int] | None) -> None:
    """Raises Error if options of traces stand alone, or together with those of other replays."""
    given = _given(context)
    if instrument is None:
        for name in (*FILTERS, "out", "force"):
            if name in given:
                raise Error(f"{given[name]} needs --instrument")
        return
    options.check("--instrument", "instrument", instrument)
    if not launch or len(launch) > 1:
        raise Error("--instrument needs one launch: --launch N")
    for name in ("kernel", "first", "last", "times", "flush_l2", "under"):
        if name in given:
            raise Error(f"{given[name]} cannot be combined with --instrument")


def _repeated(context: Context) -> list[str]:
    """The options that the process of a traced replay gets too."""
    given = context.params
    out = ["--dtype", given["dtype"]] if given["dtype"] else []
    for tolerance in given["tolerance"] or ():
        out += ["--tolerance", tolerance]
    switches = {"--no-verify": not given["verify"], "--alone": given["alone"]}
    return [*out, "--device", str(given["device"]), *(name for name, on in switches.items() if on)]


def _replay_traced(
    of: Process,
    launch: int,
    given: dict[str, object],
    out: Path | None,
    more: list[str],
    *,
    sim: bool,
    force: bool,
    json: bool,
) -> int:
    from ttanalyze.code.demangle import readable
    from ttanalyze.verbs.replay.plan import plan
    from ttanalyze.verbs.retrace import retrace

    planned = plan(of, launch)
    variables = options.variables(given, os.environ)
    with common.interruptible():
        done = retrace(planned, out, variables, sim=sim, force=force, more=more)
    if json:
        answer = {"run": str(of.path.parent), "process": of.index, "out": str(done.out)}
        answer |= {"launches": [done.outcome] if done.outcome else []}
        common.print_text(common.as_json(answer | {"not_traced": done.refusal}))
    else:
        common.print_text(f"launch {launch} of {readable(planned.kernel)}: {_told(done)}")
        if done.refusal is None:
            common.print_text(record_options.traced_text(done.out))
    if done.refusal is not None:
        common.say(f"launch {launch} was not traced: {done.refusal}")
    return common.ERROR if done.failure is not None or done.refusal is not None else done.status


def _told(done: Retraced) -> str:
    """What a traced replay did to memory."""
    status, reason = done.outcome.get("status"), done.failure or done.outcome.get("reason")
    if status == "differs":
        regions = text.count(len(done.outcome["differences"]), "region")
        return f"{regions} differ from the recording; without --instrument, `replay` says where"
    if status == "same":
        return f"leaves {text.count(done.outcome['regions'], 'region')} as recorded"
    return text.printable(f"{status or 'failed'}: {reason}")


def status(found: list[Any], wanted: bool = True, lacks: bool = False) -> int:
    """The exit status of replays. wanted: a comparison was requested. lacks: the recording failed
    before the requested end. 1: something differs. 2: a replay failed, or nothing was compared.
    """
    words = {one.status for one in found}
    if "differs" in words:
        return common.DIFFERS
    done = any(one.status == ("same" if wanted else "unchecked") for one in found)
    done &= not wanted or any(one.regions for one in found)
    return common.ERROR if "failed" in words or not done or lacks else common.SAME


def _run_under(command: str) -> None:
    """Replaces this process by the tool, which runs this command line without --under."""
    try:
        tool = shlex.split(command)
    except ValueError as e:
        raise Error(f"--under {command}: {e}") from None
    if not tool:
        raise Error("--under: the command is empty")
    rest, arguments = [], iter(sys.argv[1:])
    for word in arguments:
        if word == "--under":
            next(arguments)
        elif not word.startswith("--under="):
            rest.append(word)
    found = shutil.which(tool[0])
    if found is None:
        raise Error(f"--under: command {tool[0]} not found")
    with system_errors(Path(found)):
        os.execv(found, [*tool, *own_command(*rest, "--alone")])
