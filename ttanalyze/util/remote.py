"""Files of runs elsewhere (s3://, gs://, https://), read in ranges through fsspec.

A Url is a Path, so code that joins and prints paths needs no second way. Sizes come from one
listing of the run, made when the run is opened. What was read stays in memory up to a limit.

A file that grew while it was pushed may lie in pieces: NAME, then NAME@OFFSET for each later one.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PosixPath
from typing import Any
from urllib.parse import quote

from ttanalyze.errors import Error, MissingFileError

CHUNK = 1 << 16  # bytes that are read at least, and kept together
KEPT = 1 << 28  # bytes of chunks in memory
REQUEST = 1 << 24  # bytes of one request at most
SCHEME = re.compile(r"([a-z][a-z0-9]+):/+")
NEEDS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
NEEDS |= dict.fromkeys(("http", "https"), "aiohttp")
DEPTH = 4  # folders below each other, of which a run has two
RESERVED = "%/:?#[]@!$&'()*+,;=~"  # characters of a URL that stay as they are
PIECE = re.compile(r"(.+)@(\d+)")
RIGHTS = {
    "s3": "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}


class Url(PosixPath):
    """The path of a file elsewhere. Its text is the URL."""

    def __str__(self) -> str:
        return SCHEME.sub(r"\1://", super().__str__(), count=1)

    def __fspath__(self) -> str:
        return str(self)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Returns the size, as a regular file's. Raises FileNotFoundError."""
        try:
            size = RemoteFile(self).size
        except MissingFileError:
            raise FileNotFoundError(2, "does not exist", str(self)) from None
        return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, size, 0, 0, 0))

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        listing = _listing_of(self)
        return (self.is_file() if listing is None else str(self) in listing) or self.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        found, root = _listing_of(self), f"{self}/"
        return any(url.startswith(root) for url in (survey(self) if found is None else found))


def place(path: str | os.PathLike[str]) -> Path:
    """Returns a path on this machine as a Path, and a URL as a Url.

    The URL may have lost a slash, as in a Path. A file:// URL is a path on this machine. Raises
    Error for text that no file can have as its name.
    """
    text = os.fspath(path)
    try:
        valid = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise Error(f"{text!r}: not a valid file name")
    scheme = SCHEME.match(text)
    if scheme is None:
        return Path(path)
    if scheme[1] == "file":
        return Path("/" + text[scheme.end() :])
    if scheme[1] in ("http", "https"):  # as pages that list files have it
        text = quote(text, safe=RESERVED)
    return Url(text)


def location(path: Path) -> str:
    """Returns a URL, or an absolute path, for processes that begin in another folder."""
    return str(path if isinstance(path, Url) else path.absolute())


def is_url(path: str | os.PathLike[str]) -> bool:
    return isinstance(place(path), Url)


@dataclass
class Traffic:
    """What was read from elsewhere by this process."""

    requests: int = 0
    bytes: int = 0


@dataclass
class _Kept:
    """Chunks by file, its size and their number, the last used last."""

    chunks: OrderedDict[tuple[str, int, int], bytes] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: tuple[str, int, int]) -> bytes | None:
        with self.lock:
            found = self.chunks.get(key)
            if found is not None:
                self.chunks.move_to_end(key)
            return found

    def put(self, key: tuple[str, int, int], chunk: bytes) -> None:
        with self.lock:
            self.chunks[key] = chunk
            while len(self.chunks) > KEPT // CHUNK:
                self.chunks.popitem(last=False)


Pieces = list[tuple[int, int, str]]  # begin, size, URL
traffic = Traffic()
_kept = _Kept()
_listings: dict[str, dict[str, Pieces]] = {}  # the files of each surveyed directory, by URL


@functools.cache
def _filesystem(scheme: str) -> Any:
    try:
        import fsspec

        _, *takes = inspect.signature(
            fsspec.get_filesystem_class(scheme).__init__
        ).parameters.values()
        if any(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in takes):
            raise ValueError  # such as ftp://, which has a login that a URL does not say
        for library in ("fsspec", *NEEDS.values()):  # errors are told once, by us
            logging.getLogger(library).addHandler(logging.NullHandler())
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError:
        needed = NEEDS.get(scheme, f"the package of fsspec for {scheme}://")
        raise Error(f"{scheme}:// needs {needed}: pip install 'ttanalyze[remote]'") from None
    except ValueError:
        known = "s3://, gs://, https:// or file://"
        raise Error(f"{scheme}://: unknown kind of URL; use {known}") from None


def filesystem(url: str) -> Any:
    """Returns the file system of a URL. Raises Error if its package is missing."""
    scheme = url.partition(":")[0]
    with _errors(url):
        return _filesystem(scheme)


@contextmanager
def _errors(url: str) -> Iterator[None]:
    """Raises what a file system raises as an Error of one line."""
    try:
        yield
    except Error:
        raise
    except Exception as e:
        raise _error(url, e) from None


def _error(url: str, error: BaseException) -> Error:
    scheme = url.partition(":")[0]
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and cause is not None and hasattr(cause, "status"):
        error = cause  # what the web server said
    said = " ".join(str(error).split())
    code = getattr(error, "status", None)
    if isinstance(code, int) and code >= 500:
        return Error(f"{url}: the server failed; try again later (status {code})")
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, FileNotFoundError) or code == 404:
        return MissingFileError(f"{url}: does not exist; check the bucket and the path")
    if isinstance(error, PermissionError) or "NoCredentialsError" in kinds or code in (401, 403):
        rights = RIGHTS.get(scheme)
        todo = f"set {rights}" if rights else "use a URL that needs no login"
        return Error(f"{url}: no permission; {todo}")
    if isinstance(error, NotImplementedError):
        return Error(f"{url}: {scheme}:// cannot be written to; use s3:// or gs://")
    unreachable = {"EndpointConnectionError", "ClientConnectorError", "ConnectTimeoutError"}
    if kinds & unreachable or isinstance(error, (ConnectionError, TimeoutError)):
        todo = "check the network and the address"
        return Error(f"{url}: the server does not answer; {todo} ({said})")
    if isinstance(error, (OSError, ValueError)) or kinds & {"BotoCoreError", "ClientError"}:
        return Error(f"{url}: {said or type(error).__name__}")
    raise error


def call(url: str, method: str, *args: Any, **options: Any) -> Any:
    """Calls a method of the file system of a URL. Raises Error where the method fails."""
    system = filesystem(url)
    with _errors(url):
        return getattr(system, method)(*args, **options)


def survey(directory: Path) -> dict[str, Pieces]:
    """Lists all files below a directory, by URL, and remembers their sizes."""
    root = str(directory).rstrip("/")
    scheme = root.partition("://")[0]
    try:
        depth = DEPTH if scheme in ("http", "https") else None  # pages may link to each other
        listed = call(root, "find", root, maxdepth=depth, detail=True)
        if not listed:
            call(root, "ls", root)  # find says nothing of a server that does not answer
    except MissingFileError:
        listed = {}
    found: dict[str, Pieces] = {}
    for name, info in sorted(listed.items()):
        url = name if "://" in name else f"{scheme}://{name.lstrip('/')}"
        whole, begin = url, 0
        match = PIECE.fullmatch(url)
        if match:
            whole, begin = match[1], int(match[2])
        size = info.get("size")
        size = _size(url) if size is None else int(size)
        found.setdefault(whole, []).append((begin, size, url))
    for pieces in found.values():
        pieces.sort()
    traffic.requests += 1
    found.pop(root, None)  # of a file
    if found:
        _listings[root] = found
    return found


def _size(url: str) -> int:
    """Asks for the size of a file that no listing tells."""
    size = call(url, "size", url)
    if size is None and not url.endswith(".json"):  # which is read as a whole
        raise Error(f"{url}: the server does not say how large it is; use one that serves ranges")
    return int(size or 0)


def names_in(directory: Path) -> list[str]:
    """Returns the names in a directory, here or elsewhere."""
    if not isinstance(directory, Url):
        return os.listdir(directory)
    found, root = _listing_of(directory), str(directory).rstrip("/") + "/"
    files = survey(directory) if found is None else found
    names = {url[len(root) :].partition("/")[0] for url in files if url.startswith(root)}
    if not names:
        raise MissingFileError(f"{directory}: no files there; check the bucket and the path")
    return sorted(names)


def sizes_below(directory: Path) -> dict[str, int]:
    """Returns the bytes of all files below a directory that was listed, by their names in it."""
    found, root = _listing_of(directory) or {}, str(directory).rstrip("/") + "/"
    return {
        url[len(root) :]: sum(size for _, size, _ in pieces)
        for url, pieces in found.items()
        if url.startswith(root)
    }


def _listing_of(path: Path) -> dict[str, Pieces] | None:
    """Returns the listing of the surveyed directory that a path is in, None if there is none."""
    return next((_listings[r] for r in map(str, (path, *path.parents)) if r in _listings), None)


class RemoteFile:
    """A file elsewhere. size: its bytes when its directory was listed."""

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        listing = _listing_of(path)
        pieces = None if listing is None else listing.get(self.url)
        if listing is not None and pieces is None:
            raise MissingFileError(f"{self.url}: No such file or directory")
        self._whole: bytes | None = None
        if self.url.endswith(".json"):
            self._read_whole(path, pieces)
            return
        self._pieces = pieces or [(0, _size(self.url), self.url)]
        self.size = 0
        for begin, size, _ in self._pieces:
            if begin == self.size:  # behind a gap nothing counts
                self.size += size

    def _read_whole(self, path: Path, pieces: Pieces | None) -> None:
        """Reads a file of JSON, which is replaced, not extended.

        If it is not the listed one, the other files have grown before: they are listed again.
        """
        begin = (self.url, -1, 0)
        self._whole = _kept.get(begin)
        if self._whole is None:
            self._whole = _fetch(self.url, None, None)
            _kept.put(begin, self._whole)
            if pieces and pieces[0][1] != len(self._whole):
                root = next(r for r in map(str, (path, *path.parents)) if r in _listings)
                survey(Url(root))
        self.size = len(self._whole)

    def into(self, offset: int, out: memoryview) -> int:
        """Fills out with bytes from offset on. Returns how many there are."""
        end = min(offset + len(out), self.size)
        if self._whole is not None:
            out[: max(end - offset, 0)] = self._whole[offset:end]
            return max(end - offset, 0)
        for begin, size, url in self._pieces:
            first, last = max(offset, begin), min(end, begin + size)
            if first < last:
                to = out[first - offset : last - offset]
                _copy(url, size, first - begin, to)
        return max(end - offset, 0)


def _copy(url: str, size: int, offset: int, out: memoryview) -> None:
    """Fills out from one object, of which chunks that are not known are read together."""
    first, last = offset // CHUNK, -(-(offset + len(out)) // CHUNK)
    number = first
    while number < last:
        chunk = _kept.get((url, size, number))
        if chunk is None:
            stop = min(number + REQUEST // CHUNK, last)
            stop = next((n for n in range(number, stop) if _kept.get((url, size, n))), stop)
            raw = _fetch(url, number * CHUNK, min(stop * CHUNK, size))
            for n in range(number, stop):
                part = raw[(n - number) * CHUNK : (n - number + 1) * CHUNK]
                _kept.put((url, size, n), part)
                _place(part, n * CHUNK, offset, out)
            number = stop
        else:
            _place(chunk, number * CHUNK, offset, out)
            number += 1


def _place(chunk: bytes, at: int, offset: int, out: memoryview) -> None:
    begin, end = max(at, offset), min(at + len(chunk), offset + len(out))
    if begin < end:
        out[begin - offset : end - offset] = chunk[begin - at : end - at]


def _fetch(url: str, begin: int | None, end: int | None) -> bytes:
    raw: bytes = call(url, "cat_file", url, start=begin, end=end)
    traffic.requests += 1
    traffic.bytes += len(raw)
    if begin is None or end is None:
        return raw
    if len(raw) > end - begin:  # a server that knows no ranges
        raw = raw[begin:end]
    if len(raw) != end - begin:
        raise Error(f"{url}: {len(raw)} bytes came instead of {end - begin}; open the run again")
    return raw


def forget(directory: Path) -> None:
    """Forgets what is known of a directory, before it is opened anew."""
    root = str(directory)
    for known in [r for r in _listings if r.startswith(root)]:
        del _listings[known]
    with _kept.lock:
        for key in [k for k in _kept.chunks if k[0].startswith(root)]:
            del _kept.chunks[key]
