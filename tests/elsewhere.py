"""An S3-compatible server on this machine, with a bucket that is empty at first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

MODULES = ("fsspec", "s3fs", "moto", "flask", "flask_cors")
missing = [name for name in MODULES if find_spec(name) is None]
needs_server = pytest.mark.skipif(
    bool(missing), reason=f"no {', '.join(missing)}: pip install '.[remote-test]'"
)
BUCKET = "runs"


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """Starts the server. Yields the variables with which programs find it, also set here."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    told = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        files().mkdir(BUCKET)
        yield told
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.stop()


def files() -> Any:
    """The file system of the server."""
    from ttanalyze.util.remote import filesystem

    return filesystem("s3://")


def put(run: Path, name: str) -> str:
    """Copies a run into the bucket. Gives its URL."""
    files().put(str(run) + "/", f"{BUCKET}/{name}/", recursive=True)
    return f"s3://{BUCKET}/{name}"


@contextmanager
def web(folder: Path, fail: str = "") -> Iterator[str]:
    """Serves a folder over HTTP, with pages that list it and without ranges. Yields its address.

    fail: a status with which files of records are answered, "no size", or "page": one that names a
    folder, whatever is asked for.
    """

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def send_head(self) -> Any:
            if fail == "page":
                return self.answer(b'<a href="p0/">Log in</a>')
            if fail.isdigit() and self.path.endswith(".bin"):
                return self.send_error(int(fail))
            return super().send_head()

        def send_header(self, keyword: str, value: str) -> None:
            if fail != "no size" or keyword != "Content-Length":
                super().send_header(keyword, value)

        def answer(self, page: bytes) -> BytesIO:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            return BytesIO(page)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
