"""Uploads a run while it is recorded. What is there opens up to the last uploaded epoch.

Files are uploaded in pieces: NAME, then NAME@OFFSET for each later one. While the program runs,
only what is new of a file is read; the last round compares all of it. `push.json` beside the
pieces says whose they are and what they hold, so that an interrupted upload goes on.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import xxhash

from ttanalyze.errors import Error, MissingFileError, system_errors
from ttanalyze.format import layout
from ttanalyze.format.files import read_json
from ttanalyze.format.process_info import ProcessInfo
from ttanalyze.format.run import PUSHED
from ttanalyze.output import text
from ttanalyze.util import remote
from ttanalyze.util.progress import Progress, tell
from ttanalyze.util.regular_files import open_regular

PIECE = 1 << 23  # bytes of an object, of which the last grows
BATCH = 1 << 26  # bytes that are uploaded side by side
# Uploaded last, in this order: each refers to what comes before it. Read first.
LAST = ("epochs.bin", "process.json", "run.json")
IN_PLACE = ("events.bin", "params.bin", "timeline.bin")  # records that are filled later
BEGINS = 10.0  # seconds for the program to begin
QUIET = 10.0  # seconds without a process, after which a program has ended
SAVED = 30.0  # seconds after which what is there is noted
FORMAT, VERSION = "ttanalyze-push", 1


@dataclass
class Pushed:
    """The result of `push`.

    Attributes:
        url: Where the run is.
        bytes: The uploaded bytes.
        rounds: How often the run was looked through.
        epochs: The number of epochs that are there.
        ended: Whether the program has ended, so that all of the run is there.
        interrupted: Whether an interrupt ended the upload early.
    """

    url: str
    bytes: int = 0
    rounds: int = 0
    epochs: int = 0
    ended: bool = False
    interrupted: bool = False

    def to_json(self) -> str:
        """Returns the attributes as a JSON object in one line."""
        return orjson.dumps(asdict(self)).decode()

    def line(self) -> str:
        """Returns the result in one line for a screen."""
        line = f"{text.size(self.bytes)} uploaded; {text.count(self.epochs, 'epoch')} in {self.url}"
        if self.interrupted:
            return f"{line}; interrupted: the same command goes on"
        return line if self.ended else f"{line}; the program still runs"


def push(
    run: str | os.PathLike[str],
    url: str,
    *,
    every: float = 2.0,
    follow: bool = True,
    progress: Progress = None,
) -> Pushed:
    """Uploads a run, and what it gets until its program ends.

    The URL then has what the directory has: a file that is removed here is removed there. An
    interrupt ends the upload early, and another call goes on.

    Args:
        run: The run directory.
        url: The URL of the run, such as "s3://runs/run1". Nothing else may be there.
        every: Seconds between two looks at the run.
        follow: Whether to wait for the program's end.
        progress: Called with the looked-through and the total bytes of a round.

    Returns:
        The result.

    Raises:
        Error: `run` is no run directory, something else is at the URL, or an upload fails.
        FormatError: A JSON file of the run does not follow its format.

    Example:
        >>> tt.push("run1", "memory://runs/run1").ended
        True
    """
    source, to = remote.place(run), remote.place(url)
    if isinstance(source, remote.Url):
        raise Error(f"{source}: push needs a run directory on this machine")
    if not isinstance(to, remote.Url) or len(to.parts) < 2:
        raise Error(f"{url}: not a URL to upload to, such as s3://runs/run1")
    identity = _identity(source, BEGINS if follow else 0.0)
    target = _Target(str(to), identity)
    pushed, seen = Pushed(target.url), dict[str, _Seen]()
    try:
        while True:
            identity = _identity(source)
            if not target.has_begun(identity):
                raise Error(f"{source}: replaced by another run meanwhile; choose a new URL for it")
            ended = _ended(source)  # before the files: what comes later needs a further round
            done = _Round(source, target, seen, ended or not follow)
            done.upload(ended, progress)
            pushed.rounds, pushed.epochs, seen = pushed.rounds + 1, done.epochs, done.seen
            pushed.ended = ended
            if ended or not follow:
                break
            time.sleep(every)
    except KeyboardInterrupt:
        pushed.interrupted = True
    finally:
        target.save(pushed.ended)
    pushed.bytes = target.bytes
    return pushed


def _identity(source: Path, patience: float = 0.0) -> dict[str, Any]:
    """Returns what tells each process from others. Raises Error if none has begun in time."""
    until = time.monotonic() + patience
    while not (source / "p0" / "process.json").exists():
        if (source / "run.json").exists():
            raise Error(f"{source}: nothing to push: it has no process")
        if time.monotonic() > until:
            raise Error(f"{source}: not a run directory, or its program has not begun")
        time.sleep(0.05)
    folders = sorted(path.parent for path in source.glob("p*/process.json"))
    return {folder.name: ProcessInfo(folder).identity for folder in folders}


def _ended(source: Path) -> bool:
    """Returns whether the program has ended, also if it was killed."""
    path = source / "run.json"
    if path.exists() and "exit" in read_json(path) and not (source / "job.json").exists():
        return True
    if any(ProcessInfo(folder).runs for folder in source.glob("p*") if folder.is_dir()):
        return False
    newest = max(path.stat().st_mtime for path in source.glob("p*/process.json"))
    return time.time() - newest > QUIET  # else another process may begin


def _files(source: Path) -> dict[str, Path]:
    """Returns the files of the run, by their names in it."""
    found = (Path(folder, name) for folder, _, names in os.walk(source) for name in names)
    of = {str(path.relative_to(source)): path for path in found if path.suffix != ".tmp"}
    if "p0/process.json" not in of:
        raise Error(f"{source}: removed while it was pushed; what was uploaded stays")
    return dict(sorted((name, path) for name, path in of.items() if name != PUSHED))


class _Target:
    """What is at the URL.

    objects: size and digest of each by name, None if they are not known. identity: the processes
    that are there.
    """

    def __init__(self, url: str, identity: dict[str, Any]) -> None:
        """Raises Error if something else is there."""
        self.url, self.identity = url, identity
        self.bytes = 0
        self.objects: dict[str, tuple[int, int] | None] = {}
        self._pending: dict[str, bytes] = {}
        self._saved = 0.0
        found = {
            piece[len(url) + 1 :]: size
            for pieces in remote.survey(remote.place(url)).values()
            for _, size, piece in pieces
        }
        if PUSHED in found:
            self._resume(found)
        elif found:
            raise Error(f"{url}: other files are there; choose a new URL")
        else:
            self.save(False)

    def _resume(self, found: dict[str, int]) -> None:
        note = f"{self.url}/{PUSHED}"
        try:
            told = orjson.loads(remote.call(note, "cat_file", note))
            same = told["version"] == VERSION and told["run"].items() <= self.identity.items()
            known = {name: (size, int(digest, 16)) for name, (size, digest) in told["pieces"]}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Error(f"{note}: not written by push; choose a new URL") from None
        if not same:
            raise Error(f"{self.url}: another run is there; choose a new URL")
        for name in found.keys() - {PUSHED}:
            of = known.get(name)
            self.objects[name] = of if of and of[0] == found[name] else None

    def has_begun(self, identity: dict[str, Any]) -> bool:
        """Notes processes that began since. Returns whether those from before are the same."""
        before, self.identity = self.identity, identity
        return before.items() <= identity.items()

    def put(self, name: str, at: int, piece: bytes) -> None:
        """Uploads a piece of a file unless it is there, at the latest with `flush`."""
        to = f"{name}@{at}" if at else name
        if self.objects.get(to) == _known(piece):
            self._pending.pop(to, None)
            return
        self._pending[to] = piece
        if sum(map(len, self._pending.values())) >= BATCH:
            self.flush()

    def flush(self) -> None:
        if not self._pending:
            return
        sent, self._pending = self._pending, {}
        remote.call(self.url, "pipe", {f"{self.url}/{name}": raw for name, raw in sent.items()})
        self.objects |= {name: _known(piece) for name, piece in sent.items()}
        self.bytes += sum(map(len, sent.values()))
        if time.monotonic() > self._saved + SAVED:
            self.save(False)

    def keep(self, ends: dict[str, int]) -> None:
        """Removes all but the pieces of these files, up to their ends."""
        wanted = set(ends)
        wanted.update(f"{name}@{at}" for name in ends for at in range(PIECE, ends[name], PIECE))
        gone = sorted(self.objects.keys() - wanted)
        if gone:
            remote.call(self.url, "rm", [f"{self.url}/{name}" for name in gone])
        for name in gone:
            del self.objects[name]

    def save(self, ended: bool) -> None:
        """Notes what is there. ended: whether that is all of a run that has ended."""
        pieces = [(name, (of[0], f"{of[1]:016x}")) for name, of in self.objects.items() if of]
        note = {"format": FORMAT, "version": VERSION, "run": self.identity, "ended": ended}
        raw = orjson.dumps({**note, "pieces": pieces})
        remote.call(self.url, "pipe", {f"{self.url}/{PUSHED}": raw})
        self._saved = time.monotonic()


def _known(piece: bytes) -> tuple[int, int]:
    return len(piece), xxhash.xxh3_64_intdigest(piece)


@dataclass
class _Seen:
    """What a round saw of a file. end: its bytes; 0 of JSON, which has one piece."""

    end: int = 0
    changed_ns: int = 0


class _Round:
    """One look through the run.

    before: what the last round saw. whole: whether to read all bytes, not only the new ones.
    """

    def __init__(
        self, source: Path, target: _Target, before: dict[str, _Seen], whole: bool
    ) -> None:
        self.target, self.before, self.whole = target, before, whole
        self.seen: dict[str, _Seen] = {}
        self.files = _files(source)

    @property
    def epochs(self) -> int:
        """The number of epochs that are there."""
        ends = [seen.end for name, seen in self.seen.items() if Path(name).name == LAST[0]]
        return sum(max(end - layout.HEADER_SIZE, 0) // layout.EPOCH.itemsize for end in ends)

    def upload(self, ended: bool, progress: Progress) -> None:
        """Uploads what is new, and removes what is gone. ended: whether nothing comes any more."""
        last = [[name for name in self.files if Path(name).name == one] for one in LAST]
        until = {name: self._until(name) for group in last for name in group}
        manifests = [name for name in self.files if Path(name).name == "manifest.json"]
        rest = [name for name in self.files if name not in until and name not in manifests]
        done = 0
        for group in (rest, *last, manifests if ended else []):
            for name in group:
                with suppress(MissingFileError):  # the recorder removes old data files
                    self._file(name, until.get(name))
                done += 1
                tell(progress, done, len(self.files))
            self.target.flush()
        self.target.keep({name: seen.end for name, seen in self.seen.items()})

    def _until(self, name: str) -> bytes | int:
        """Returns the contents of a file that is replaced, or the size of one that grows."""
        with suppress(MissingFileError):
            return _read(self.files[name]) if name.endswith(".json") else _stat(self.files[name])[0]
        return 0

    def _file(self, name: str, until: bytes | int | None) -> None:
        path = self.files[name]
        if name.endswith(".json"):
            self.target.put(name, 0, until if isinstance(until, bytes) else _read(path))
            self.seen[name] = _Seen()
            return
        before, now = self.before.get(name, _Seen()), _Seen(*_stat(path))
        if self.whole or path.name in IN_PLACE:
            before = _Seen()
        elif before == now:
            self.seen[name] = before
            return
        at = min(before.end, now.end) // PIECE * PIECE
        with system_errors(path), open(open_regular(path), "rb", buffering=0) as file:
            file.seek(at)
            while True:
                most = PIECE if not isinstance(until, int) else max(min(PIECE, until - at), 0)
                piece = file.read(most) or b""
                if piece or not at:
                    self.target.put(name, at, piece)
                at += len(piece)
                if len(piece) < PIECE:
                    break
        self.seen[name] = _Seen(at, now.changed_ns)


def _stat(path: Path) -> tuple[int, int]:
    """Returns size and time of change of a file."""
    with system_errors(path):
        found = path.stat()
    return found.st_size, found.st_mtime_ns


def _read(path: Path) -> bytes:
    with system_errors(path), open(open_regular(path), "rb") as file:
        return file.read()
