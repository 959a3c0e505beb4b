"""What programs do with ttanalyze.gpu, a function each: `python -m tests.graph_cases NAME`.

Each runs in a process of its own, on the simulator or on a GPU, recorded or not, and must print
the same: what it prints is compared.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.gpu import (
    CudaError,
    Device,
    DeviceBuffer,
    EndedError,
    Graph,
    GraphExec,
    MemcpyDirection,
    Module,
    Stream,
    StreamCapture,
)

HEAD = ".version 6.3\n.target sm_70\n.address_size 64\n"
ELEMENT = """
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
    mad.lo.u32 %r1, %r3, %r4, %r5;
    ld.param.u32 %r2, [n];
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra DONE;
    ld.param.u64 %rd1, [p];
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
"""
REGISTERS = "    .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .b16 %h<4>;\n"


def _kernel(name: str, params: str, body: str) -> str:
    return f".visible .entry {name}({params})\n{{\n{REGISTERS}{body}DONE:\n    ret;\n}}\n"


PTX = (
    HEAD
    + ".visible .global .align 4 .u32 total = 5;\n"
    + ".extern .shared .align 4 .b8 dynamic[];\n"
    # p[i] += value
    + _kernel(
        "add",
        ".param .u64 p, .param .u32 n, .param .u32 value",
        ELEMENT
        + "    ld.param.u32 %r6, [value]; ld.global.u32 %r7, [%rd1];\n"
        + "    add.u32 %r7, %r7, %r6; st.global.u32 [%rd1], %r7;\n",
    )
    # p[i] *= value, a template of C++
    + _kernel(
        "_Z5scaleIjEvPT_jS0_",
        ".param .u64 p, .param .u32 n, .param .u32 value",
        ELEMENT
        + "    ld.param.u32 %r6, [value]; ld.global.u32 %r7, [%rd1];\n"
        + "    mul.lo.u32 %r7, %r7, %r6; st.global.u32 [%rd1], %r7;\n",
    )
    # **p = value
    + _kernel(
        "follow",
        ".param .u64 p, .param .u32 value",
        "    ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd1, %rd1; ld.global.u64 %rd2, [%rd1];\n"
        "    cvta.to.global.u64 %rd2, %rd2;\n"
        "    ld.param.u32 %r1, [value]; st.global.u32 [%rd2], %r1;\n",
    )
    # arguments of all sizes, stored one behind the other
    + _kernel(
        "store",
        ".param .u64 p, .param .u8 a, .param .u16 b, .param .u32 c, .param .f64 d, .param .f32 e,"
        " .param .align 4 .b8 f[12]",
        "    ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd1, %rd1;\n"
        "    ld.param.u8 %r1, [a]; st.global.u32 [%rd1], %r1;\n"
        "    ld.param.u16 %h1, [b]; cvt.u32.u16 %r1, %h1; st.global.u32 [%rd1+4], %r1;\n"
        "    ld.param.u32 %r1, [c]; st.global.u32 [%rd1+8], %r1;\n"
        "    ld.param.b64 %rd2, [d]; st.global.u64 [%rd1+16], %rd2;\n"
        "    ld.param.b32 %r1, [e]; st.global.u32 [%rd1+24], %r1;\n"
        "    ld.param.b32 %r1, [f+8]; st.global.u32 [%rd1+28], %r1;\n",
    )
    # p[i] = the value that the last thread of its block put into shared memory, at `place`
    + _kernel(
        "share",
        ".param .u64 p, .param .u32 n, .param .u32 place",
        ELEMENT
        + "    ld.param.u32 %r6, [place]; mov.u32 %r7, dynamic; add.u32 %r6, %r6, %r7;\n"
        + "    sub.u32 %r8, %r4, 1; setp.ne.u32 %p2, %r5, %r8;\n"
        + "    @%p2 bra WAIT;\n    st.shared.u32 [%r6], %r1;\nWAIT:\n    bar.sync 0;\n"
        + "    ld.shared.u32 %r9, [%r6]; st.global.u32 [%rd1], %r9;\n",
    )
).encode()
# What the simulator says besides the error.
REFUSED_IMAGE = "ttanalyze simulator: module not loaded: neither PTX nor a fat binary\n"
COUNT = 1000
BYTES = 4 * COUNT
LAUNCH: dict[str, Any] = {"grid": 4, "block": 256}


def _refused(what: Callable[[], Any], kind: type[Error] = Error) -> str:
    said = ""
    try:
        what()
    except kind as e:
        said = str(e)
    assert said and "\n" not in said
    return said


def _is(buffer: DeviceBuffer, value: int) -> None:
    found = buffer.read("u4")
    assert (found == value).all(), (found[:8], value)


def capture() -> None:
    """All that can be recorded, launched more than once."""
    Module.load(PTX)
    device = Device(0)
    given, taken = np.arange(COUNT, dtype="u4"), np.zeros(COUNT, "u4")
    first, second = DeviceBuffer(BYTES), DeviceBuffer(BYTES)
    capture = StreamCapture.begin(Stream(device))
    capture.record_memset(BYTES, 7, dst=first, item=4)
    capture.record_kernel("add", 4, 256, args=(first, COUNT, 3))
    capture.record_memcpy("h2d", BYTES, dst=second, src=given)
    capture.record_kernel("scale<unsigned int>", (4, 1), (256,), 0, (second, COUNT, 2))
    capture.record_memcpy("device_to_device", BYTES // 2, dst=first, src=second)
    capture.record_memcpy("DtoH", BYTES, dst=taken, src=first)
    print(capture.recorded_count(), capture)
    graph = capture.end()
    print(graph.node_count(), graph)
    nodes, edges = graph.nodes, graph.edges
    print(nodes[["node", "kind", "kernel", "short", "bytes", "shared"]].to_string())
    print(nodes[[f"{size}_{axis}" for size in ("grid", "block") for axis in "xyz"]].to_string())
    print(edges.to_string())
    assert nodes["params"][1] == struct.pack("<QII", first.address, COUNT, 3)
    assert nodes["known"].all()
    dot = graph.to_dot()
    assert dot.startswith("digraph") and dot.count("->") == 5 and "4,1,1 by 256,1,1" in dot
    executable = graph.instantiate()
    print(executable)
    expected = np.where(np.arange(COUNT) < COUNT // 2, 2 * given, 10)
    for step in range(3):
        given[:] = np.arange(COUNT) + step
        executable.launch()
        device.synchronize()
        expected[: COUNT // 2] = 2 * given[: COUNT // 2]
        np.testing.assert_array_equal(taken, expected)
        np.testing.assert_array_equal(first.read("u4"), expected)
    with Stream() as other:
        executable.launch(other.cuda_stream)
        other.synchronize()


def foreign_streams() -> None:
    """Streams of other libraries, and work that they submit themselves."""

    class OfTorch:
        def __init__(self, stream: Stream) -> None:
            self.cuda_stream = stream.handle

    class OfCupy:
        def __init__(self, stream: Stream) -> None:
            self.ptr = stream.handle

    class OfCudaPython:
        def __init__(self, stream: Stream) -> None:
            self._handle = stream.handle

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self._handle

    class Tensor:
        def __init__(self, memory: DeviceBuffer) -> None:
            self._memory = memory

        def data_ptr(self) -> int:
            return self._memory.address

    class Array:
        def __init__(self, memory: DeviceBuffer) -> None:
            self.__cuda_array_interface__ = memory.__cuda_array_interface__

    module, stream, buffer = Module.load(PTX), Stream(), DeviceBuffer.of(np.zeros(COUNT, "u4"))
    total = 0
    for given in (OfTorch(stream), OfCupy(stream), OfCudaPython(stream), stream.handle, stream):
        for memory in (Tensor(buffer), Array(buffer), buffer, buffer.address):
            with StreamCapture.begin(given) as capture:
                function = module.function("add")
                argument = ("ptr", memory) if isinstance(memory, int) else memory
                capture.record_kernel(function, **LAUNCH, args=[argument, COUNT, np.uint32(1)])
                driver = stream.device.driver  # a call of somebody else's
                with stream.device.use():
                    address, raw = buffer.address, capture._raw
                    driver.call("cuMemsetD32Async", address + BYTES - 4, 1, 1, raw)
            assert capture.graph.node_count() == 2
            capture.graph.instantiate().launch(given)
            total += 1
            stream.synchronize()
            assert buffer.read("u4")[:-1].tolist() == [total] * (COUNT - 1)
            assert buffer.read("u4", BYTES - 4).tolist() == [1]
    print(_refused(lambda: StreamCapture.begin("a stream")))
    print(_refused(lambda: StreamCapture.begin(1)))
    print(_refused(lambda: StreamCapture.begin(stream, mode="strict")))
    capture = StreamCapture.begin(stream)
    print(_refused(lambda: StreamCapture.begin(stream)))
    capture.end()
    stream.close()
    print(_refused(lambda: StreamCapture.begin(stream), EndedError))
    print(_refused(lambda: capture.graph.instantiate().launch(stream), EndedError))


def update() -> None:
    """Nodes of an executable graph, and all of it."""
    Module.load(PTX)
    device = Device(0)
    first, second = DeviceBuffer(BYTES), DeviceBuffer(BYTES)
    source, other = np.full(COUNT, 100, "u4"), np.full(COUNT, 200, "u4")
    with StreamCapture.begin() as capture:
        capture.record_memset(BYTES, 1, first, item=4)
        capture.record_kernel("add", **LAUNCH, args=(first, COUNT, 10))
        capture.record_memcpy("h2d", BYTES, second, source)
    graph = capture.graph
    executable = graph.instantiate()

    def run(one: int, two: int) -> None:
        executable.launch()
        device.synchronize()
        _is(first, one)
        _is(second, two)

    run(11, 100)
    executable.update(0, value=5)
    run(15, 100)
    executable.update(1, args=(first, COUNT, 20))
    run(25, 100)
    executable.update(1, function="_Z5scaleIjEvPT_jS0_")
    run(100, 100)
    executable.update(2, src=other)
    run(100, 200)
    executable.update(2, dst=second, size=8)
    second.write(np.zeros(COUNT, "u4"))
    executable.launch()
    device.synchronize()
    assert second.read("u4").tolist() == [200, 200] + [0] * (COUNT - 2)
    executable.update(1, grid=1, block=(8, 1, 1))
    executable.launch()
    device.synchronize()
    assert first.read("u4")[:10].tolist() == [100] * 8 + [5, 5]
    executable.enable(1, False)
    executable.launch()
    device.synchronize()
    _is(first, 5)
    executable.enable(1)
    graph.instantiate().launch()  # which is as it was recorded
    device.synchronize()
    _is(first, 11)

    print(_refused(lambda: executable.update(3, value=1)))
    print(_refused(lambda: executable.update(-1, value=1)))
    print(_refused(lambda: executable.update(0, args=())))
    print(_refused(lambda: executable.update(1, args=(first,))))
    print(_refused(lambda: executable.update(1, function="ad")))
    print(_refused(lambda: executable.update(2, size=BYTES + 4, src=source)))

    with StreamCapture.begin() as capture:
        capture.record_memset(BYTES, 2, first, item=4)
        capture.record_kernel("add", **LAUNCH, args=(first, COUNT, 40))
        capture.record_memcpy("h2d", BYTES, second, source)
    executable.update(capture.graph)
    run(42, 100)
    executable.update(0, value=3)
    run(43, 100)
    with StreamCapture.begin() as capture:
        capture.record_memset(BYTES, 2, first, item=4)
    print(_refused(lambda: executable.update(capture.graph)))
    print(_refused(lambda: executable.update(capture.graph, value=3)))
    run(43, 100)
    capture.graph.close()
    print(_refused(lambda: executable.update(capture.graph), EndedError))


def by_hand() -> None:
    """A graph that is put together: two branches that meet."""
    Module.load(PTX)
    device = Device(0)
    left, right = DeviceBuffer(BYTES), DeviceBuffer(BYTES)
    with Graph.new(device) as graph:
        clear = graph.add_memset_node(BYTES, 3, left, item=4)
        one = graph.add_kernel_node("add", **LAUNCH, args=(left, COUNT, 1), after=[clear])
        two = graph.add_memset_node(BYTES, 0x0101, right, item=2)
        both = graph.add_kernel_node("add", **LAUNCH, args=(right, COUNT, 1), after=[one, two])
        graph.add_memcpy_node("d2d", 4, left, right, after=[both])
        print(graph.edges[["from", "to"]].values.tolist(), graph.node_count())
        print(_refused(lambda: graph.add_memset_node(4, 0, left, after=[9])))
        executable = graph.instantiate()
    print(_refused(lambda: executable.update(0, value=1), EndedError))
    executable.launch()
    device.synchronize()
    assert left.read("u4").tolist() == [0x01010102] + [4] * (COUNT - 1)
    _is(right, 0x01010102)
    print(_refused(lambda: graph.node_count(), EndedError))
    print(_refused(lambda: graph.instantiate(), EndedError))
    with executable:
        pass
    print(_refused(lambda: executable.launch(), EndedError))
    print(graph, executable)


def arguments() -> None:
    """Arguments of all types, and those that do not fit."""
    module = Module.load(PTX)
    device = Device(0)
    out = DeviceBuffer(32)
    structure = np.array([(1, 2, 0xABCDEF)], "u4,u4,u4")[0]

    def stored(*args: Any) -> list[Any]:
        with StreamCapture.begin() as capture:
            capture.record_kernel("store", 1, 1, args=(out, *args))
        capture.graph.instantiate().launch()
        device.synchronize()
        raw = out.read()
        numbers = [*raw[:12].view("u4"), *raw[16:24].view("f8"), *raw[24:28].view("f4")]
        return [n.item() for n in numbers] + [hex(raw[28:].view("u4")[0])]

    print(stored(255, 65535, -1, 0.1, 0.1, structure))
    print(stored(np.uint8(1), np.int16(-2), np.uint32(3), np.float64(4), np.float32(5), bytes(12)))
    print(stored(True, ("f16", 1.0), ("i32", -7), ("f64", 2), ("f32", 3), b"x" * 12))
    from_c = (ctypes.c_uint8(9), ctypes.c_short(8), ctypes.c_int(7), ctypes.c_double(6))
    print(stored(*from_c, ("u32", 0x40A00000), (ctypes.c_int * 3)(5, 4, 3)))
    print(stored(("u8", 1), ("bf16", 1.0), 1, 0.0, 0.0, bytes(12)))
    print(module.function("store").layout)
    good = [1, 2, 3, 4.0, 5.0, bytes(12)]
    for at, wrong in [
        (0, 256),
        (0, -129),
        (1, 1 << 16),
        (2, 1 << 40),
        (2, np.int64(1)),
        (2, ("i64", 1)),
        (2, ("q7", 1)),
        (2, ("u8", 300)),
        (4, 1e300),
        (5, bytes(11)),
        (5, 1),
        (3, "4.0"),
        (3, [4.0]),
    ]:
        args = [*good[:at], wrong, *good[at + 1 :]]
        print(_refused(lambda args=args: stored(*args)))  # type: ignore[misc]
    print(_refused(lambda: stored()))
    print(_refused(lambda: stored(*good, 1)))


def described() -> None:
    """Nodes without code and addresses: the example that oxicuda documents, then what makes its
    graph run.
    """
    stream = Stream(Device(0))
    capture = StreamCapture.begin(stream)
    capture.record_kernel("my_kernel", (4, 1, 1), (256, 1, 1), 0)
    capture.record_memcpy(MemcpyDirection.DeviceToHost, 1024)
    capture.record_memset(1024, 7)
    assert capture.is_active() and capture.recorded_count() == 3
    graph = capture.end()
    assert graph.node_count() == 3 and graph.dependency_count() == 2
    for ended in (capture.end, lambda: capture.record_memset(1024, 7)):
        print(_refused(ended, CudaError.StreamCaptureUnmatched))
    columns = ["kind", "kernel", "grid_x", "block_x", "shared", "bytes", "known"]
    print(graph.nodes[columns].to_string())
    print([str(graph.get_node(i) and graph.get_node(i).kind) for i in (0, 1, 2, 3)])  # type: ignore[union-attr]
    print(graph.topological_sort(), "my_kernel" in graph.to_dot())
    print(_refused(graph.instantiate))

    Module.load(PTX)
    memory, taken = DeviceBuffer.of(np.arange(256, dtype="u4")), np.zeros(256, "u4")
    first = graph.add_memset_node(8, 1)
    last = graph.add_empty_node(after=[2, first])
    graph.add_dependency(first, 1)
    print(_refused(lambda: graph.add_dependency(last, last)))
    print(_refused(lambda: graph.add_dependency(0, 9)))
    graph.bind(0, function="add")
    print(_refused(lambda: graph.bind(1, dst=taken)))
    print(_refused(lambda: graph.bind(1, args=())))
    graph.bind(1, dst=taken, src=memory)
    print(_refused(graph.instantiate))
    graph.bind(2, dst=memory, size=4)
    graph.bind(first, dst=memory.address + 4)
    print(_refused(lambda: graph.bind(first, dst=memory)))
    graph.bind(0, args=(memory, 256, 10))
    print(graph.nodes[columns].to_string())
    print(graph.edges[["from", "to"]].sort_values(["from", "to"]).values.tolist())
    executable = graph.instantiate()
    assert executable.node_count() == 5 and executable.graph() is graph
    order = executable.execution_order()
    assert all(order.index(a) < order.index(b) for a, b in graph.edges[["from", "to"]].values)
    executable.enable(first, False)
    executable.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(taken, np.arange(256) + 10)
    assert memory.read("u4")[:2].tolist() == [0x07070707, 11]
    executable.update(0, args=(memory, 256, 20))
    graph.add_dependency(last, first)
    print(_refused(graph.topological_sort))

    with StreamCapture.begin(stream) as capture:
        capture.record_kernel("my_kernel", 4, 256)
    Module.load((HEAD + _kernel("my_kernel", "", "")).encode())
    capture.graph.instantiate().launch(stream)  # by its name, now that there is one


def errors() -> None:
    """What is refused, and how it is said."""
    device = Device(0)
    print(_refused(lambda: StreamCapture.begin().record_kernel("add", 1, 1, args=())))
    module = Module.load(PTX)
    buffer = DeviceBuffer(64)
    capture = StreamCapture.begin()
    half: Any = 1.5
    odd: Any = module
    for wrong in (
        lambda: capture.record_kernel("sotre", 1, 1, args=()),
        lambda: capture.record_kernel("nothing like it", 1, 1, args=()),
        lambda: capture.record_kernel("add", 0, 1, args=(buffer, 1, 1)),
        lambda: capture.record_kernel("add", (1, 1, 1, 1), 1, args=(buffer, 1, 1)),
        lambda: capture.record_kernel("add", (1 << 32, 1), 1, args=(buffer, 1, 1)),
        lambda: capture.record_kernel("add", half, 1, args=(buffer, 1, 1)),
        lambda: capture.record_kernel("add", 1, 1, -1, args=(buffer, 1, 1)),
        lambda: capture.record_kernel(odd, 1, 1),
        lambda: capture.record_memcpy("up", 64, buffer, buffer),
        lambda: capture.record_memcpy("h2d", 64, buffer),
        lambda: capture.record_memcpy("h2d", 64, buffer, buffer),
        lambda: capture.record_memcpy("d2d", 65, buffer, buffer),
        lambda: capture.record_memcpy("d2h", 64, bytes(64), buffer),
        lambda: capture.record_memcpy("h2d", 64, buffer, np.zeros(8, "u4")),
        lambda: capture.record_memcpy("h2d", 64, buffer, np.zeros((8, 8))[:, 0]),
        lambda: capture.record_memcpy("h2d", 64, buffer, 1.5),
        lambda: capture.record_memcpy("d2d", 0, buffer, buffer),
        lambda: capture.record_memcpy("d2d", half, buffer, buffer),
        lambda: capture.record_memset(64, half, buffer),
        lambda: capture.record_memset(64, 256, buffer),
        lambda: capture.record_memset(63, 0, buffer, item=2),
        lambda: capture.record_memset(64, 0, buffer, item=3),
        lambda: buffer.read(),
        lambda: device.synchronize(),
        lambda: capture.graph,
    ):
        print(_refused(wrong))
    assert capture.recorded_count() == 0 and capture.is_active()
    graph = capture.end()
    print(graph.node_count(), len(graph.nodes), len(graph.edges))
    for ended in (capture.end, lambda: capture.record_memset(64, 0, buffer)):
        print(_refused(ended, EndedError))
    capture = StreamCapture.begin()
    many = _refused(lambda: capture.record_kernel("add", 1, 4096, args=(buffer, 1, 1)))
    print(*many.split(":")[:2], capture.is_active())  # which ends it
    print(_refused(lambda: Module.load("/nowhere/kernels.ptx")))
    print(_refused(lambda: DeviceBuffer(0)))
    print(_refused(lambda: DeviceBuffer(1 << 70)))
    print(_refused(lambda: buffer.read(object)))
    print(_refused(lambda: buffer.read("no type")))
    print(_refused(lambda: buffer.write(None)))
    print(_refused(lambda: buffer.read(offset=60, count=8)))
    print(_refused(lambda: buffer.write(np.zeros(65, "u1"))))
    assert "loading a module" in _refused(lambda: Module.load(b"this is no PTX"))
    assert "variable missing of a module" in _refused(lambda: module.variable("missing"))
    print(_refused(lambda: Device(99)).split(":")[0])
    module.unload()
    print(_refused(lambda: module.function("add"), EndedError))
    print(_refused(lambda: StreamCapture.begin().record_kernel("add", 1, 1, args=())))


def invalidated() -> None:
    """A call that is not allowed ends the capture; the stream is good again afterwards."""
    module = Module.load(PTX)
    stream, buffer = Stream(), DeviceBuffer(64)
    capture = StreamCapture.begin(stream)
    capture.record_memset(64, 0, buffer)
    with stream.device.use() as driver:
        assert driver.result("cuStreamSynchronize", capture._raw)
    print(_refused(lambda: capture.record_memset(64, 0, buffer)))
    print(capture.is_active(), _refused(capture.end, EndedError))
    capture = StreamCapture.begin(stream)
    with stream.device.use() as driver:
        assert driver.result("cuStreamSynchronize", capture._raw)
    print(_refused(capture.end))
    capture = StreamCapture.begin(stream)
    capture.abandon()
    print(_refused(capture.end, EndedError))
    capture = StreamCapture.begin(stream)
    capture.record_memset(64, 0, buffer)
    del capture  # which ends it
    gc.collect()
    try:
        with StreamCapture.begin(stream) as capture:
            capture.record_memset(64, 0, buffer)
            raise KeyError("of the program")
    except KeyError:
        print(_refused(lambda: capture.graph))
    with StreamCapture.begin(stream) as capture:
        capture.record_memset(64, 3, buffer)
        made = DeviceBuffer(64)  # is no work of the stream's
        del made
        gc.collect()
        assert module.function("add").name == "add"
    capture.graph.instantiate().launch(stream)
    stream.synchronize()
    assert buffer.read().tolist() == [3] * 64


def memory() -> None:
    """Buffers: what goes in comes out, and when they go."""
    values = np.arange(100, dtype="f8")
    buffer = DeviceBuffer.of(values)
    np.testing.assert_array_equal(buffer.read("f8"), values)
    np.testing.assert_array_equal(buffer.read("f8", 80, 5), values[10:15])
    buffer.write(b"\x00" * 8, 8)
    buffer.write(values[::-1][:3], 792 - 16)
    assert buffer.read("f8")[[0, 1, 2, 97, 98, 99]].tolist() == [0, 0, 2, 99, 98, 97]
    interface = buffer.__cuda_array_interface__
    assert interface["data"] == (buffer.address, False) and interface["shape"] == (800,)
    with DeviceBuffer(16) as other:
        other.write(bytes(range(16)))
    for gone in (lambda: other.address, lambda: other.read(), lambda: other.write(b"")):
        print(_refused(gone, EndedError))
    print(other)
    other.free()


def lifetimes() -> None:
    """Graphs keep what they need; what nobody needs goes."""
    device = Device(0)
    module, buffer = Module.load(PTX, device), DeviceBuffer(BYTES, device)
    source, out = np.full(COUNT, 6, "u4"), np.zeros(COUNT, "u4")
    seen = [weakref.ref(thing) for thing in (module, buffer, source)]
    with StreamCapture.begin(device=device) as capture:
        capture.record_memcpy("h2d", BYTES, buffer, source)
        capture.record_kernel("add", **LAUNCH, args=(buffer, COUNT, 1))
        capture.record_memcpy("d2h", BYTES, out, buffer)
    executable = capture.graph.instantiate()
    executable.update(1, args=(buffer, COUNT, 2))
    del module, buffer, source, capture
    gc.collect()
    assert all(thing() is not None for thing in seen)
    executable.launch()
    device.synchronize()
    assert (out == 8).all()
    executable.close()
    gc.collect()
    assert [thing() is None for thing in seen] == [False, True, True]
    context, driver = weakref.ref(device.context), device.driver
    together: list[Any] = [StreamCapture.begin(device=device)]
    captured = device.context.captured
    ended: list[bool] = []
    stream = weakref.ref(together[0].stream, lambda _: ended.append(bool(captured)))
    together.append(together)
    del together
    gc.collect()
    assert stream() is None and ended == [False]  # the capture goes before its stream
    del device, executable, stream
    gc.collect()
    assert seen[0]() is None and context() is None
    flags, active = ffi.new("unsigned *"), ffi.new("int *", 1)
    driver.call("cuDevicePrimaryCtxGetState", 0, flags, active)
    assert not active[0]


def host_arrays() -> None:
    """Arrays that only a launch under way still writes to are there until it is through."""
    device, stream, word = Device(0), Stream(), DeviceBuffer(4)
    source = DeviceBuffer.of(np.arange(COUNT, dtype="u4"))

    class Out(np.ndarray[Any, Any]):
        pass

    def copying() -> tuple[GraphExec, weakref.ref[Any]]:
        """Into an array, which is not the one that the graph was made with, and held up."""
        graph = Graph.new()
        graph.add_memcpy_node("d2h", BYTES, np.zeros(COUNT, "u4"), source)
        executable, out = graph.instantiate(), np.zeros(COUNT, "u4").view(Out)
        executable.update(0, dst=out)
        word.write(bytes(4))
        with device.use() as driver:
            raw = ffi.cast("CUstream", stream.handle)
            driver.call("cuStreamWaitValue32_v2", raw, word.address, 1, 0)
        executable.launch(stream)
        return executable, weakref.ref(out)

    def update(executable: GraphExec) -> None:
        executable.update(0, dst=np.zeros(COUNT, "u4"))
        updated.append(executable)

    updated: list[GraphExec] = []
    for let_go in (update, GraphExec.close, lambda _: None):
        executable, seen = copying()
        let_go(executable)
        del executable
        gc.collect()
        out = seen()
        word.write(b"\1\0\0\0")
        stream.synchronize()
        assert out is not None and out[100] == 100
        del out
        copying()[0].close()
        assert seen() is None
        word.write(b"\1\0\0\0")
        stream.synchronize()


def exit_with_everything() -> None:
    """Python ends while all is in use."""
    global kept
    module, buffer = Module.load(PTX), DeviceBuffer(BYTES)
    capture = StreamCapture.begin()
    capture.record_kernel("add", **LAUNCH, args=(buffer, COUNT, 1))
    graph = capture.end()
    executable = graph.instantiate()
    executable.launch()
    kept = [module, buffer, graph, executable, Stream(), StreamCapture.begin()]


kept: list[Any] = []


def threads() -> None:
    """Several threads record and launch at once."""
    Module.load(PTX)
    failed: list[BaseException] = []
    streams: set[int] = set()

    def work(number: int) -> None:
        try:
            buffer = DeviceBuffer.of(np.zeros(COUNT, "u4"))
            stream = Stream()
            streams.add(stream.device.copies.handle)
            for _ in range(5):
                Module.load(PTX)
                with StreamCapture.begin(stream) as capture:
                    for step in range(10):
                        capture.record_kernel("add", **LAUNCH, args=(buffer, COUNT, number + step))
                executable = capture.graph.instantiate()
                executable.launch(stream)
                stream.synchronize()
            out = np.zeros(COUNT, "u4")
            with StreamCapture.begin(stream) as capture:
                capture.record_memcpy("d2h", BYTES, out, buffer)
            capture.graph.instantiate().launch(stream)
            stream.synchronize()
            assert (out == 5 * (10 * number + 45)).all(), out[:4]
        except BaseException as e:
            failed.append(e)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed
    assert len(streams) == 1


def shared_memory() -> None:
    """More dynamic shared memory than a kernel has without asking; a module's variable."""
    module = Module.load(PTX)
    device, buffer = Device(0), DeviceBuffer(BYTES)
    with StreamCapture.begin() as capture:
        capture.record_kernel("share", 4, 256, 96 << 10, (buffer, COUNT, (96 << 10) - 4))
    capture.graph.instantiate().launch()
    device.synchronize()
    found = buffer.read("u4")
    assert found[:768].tolist() == [255] * 256 + [511] * 256 + [767] * 256
    function = module.function("share")
    print(_refused(lambda: function.allow_shared(1 << 30)).split(":")[0])
    address, size = module.variable("total")
    out = np.zeros(1, "u4")
    with StreamCapture.begin() as capture:
        capture.record_kernel("add", 1, 32, args=(("ptr", address), 1, 4))
        capture.record_memcpy("d2h", size, out, address)
    capture.graph.instantiate().launch()
    device.synchronize()
    print(size, out.tolist())


def indirect() -> None:
    """A kernel finds memory through a pointer that lies in memory."""
    Module.load(PTX)
    data = DeviceBuffer.of(np.zeros(4, "u4"))
    table = DeviceBuffer.of(np.array([data.address + 8], "u8"))
    with StreamCapture.begin() as capture:
        capture.record_kernel("follow", 1, 1, args=(table, 77))
    capture.graph.instantiate().launch()
    print(data.read("u4").tolist())


def _box(dst: Any, src: Any, *, rows: int, slices: int = 1, width: int = 20) -> Any:
    """A copy of rows of a pitch of 64 bytes, from column 4 of row 2 on, to column 8 of row 1."""
    box = ffi.new("CUDA_MEMCPY3D *")
    box.dstMemoryType, box.dstDevice, box.srcMemoryType = 2, dst.address, 2
    if isinstance(src, DeviceBuffer):
        box.srcDevice = src.address
    else:
        box.srcMemoryType, box.srcHost = 1, ffi.from_buffer(src)
    box.srcXInBytes, box.srcY, box.dstXInBytes, box.dstY = 4, 2, 8, 1
    box.dstPitch = box.srcPitch = 64
    box.dstHeight, box.srcHeight = 16, 8
    box.WidthInBytes, box.Height, box.Depth = width, rows, slices
    return box


def rows() -> None:
    """Copies and sets of rows, by the program's own calls, in a stream and in a graph."""
    device, stream = Device(0), Stream()
    given = np.arange(4096, dtype="u2").view("u1")
    source, target = DeviceBuffer.of(given), DeviceBuffer.of(np.zeros(8192, "u1"))
    raw = ffi.cast("CUstream", stream.handle)
    driver = device.driver
    with device.use():
        driver.call("cuMemcpy3DAsync_v2", _box(target, source, rows=3), raw)
        driver.call("cuMemcpy3DAsync_v2", _box(target, given, rows=3, slices=4, width=7), raw)
        driver.call("cuMemsetD2D16Async", target.address + 4096, 128, 0x1234, 5, 7, raw)
        driver.call("cuStreamSynchronize", raw)
    with StreamCapture.begin(stream) as capture, device.use():
        driver.call("cuMemsetD2D32Async", target.address + 6144, 256, 0x01020304, 3, 4, raw)
        driver.call("cuMemcpy3DAsync_v2", _box(target, source, rows=2, slices=2, width=9), raw)
    executable = capture.graph.instantiate()
    print(capture.graph.nodes[["kind", "bytes", "shared", "known"]].to_string())
    other = DeviceBuffer.of(given[::-1])
    print(_refused(lambda: executable.update(1, src=other)))
    with StreamCapture.begin(stream) as capture, device.use():
        driver.call("cuMemsetD2D32Async", target.address + 6144, 256, 0x01020304, 3, 4, raw)
        driver.call("cuMemcpy3DAsync_v2", _box(target, other, rows=2, slices=2, width=9), raw)
    print(_refused(lambda: executable.update(capture.graph)).split(": ")[1])
    capture.graph.instantiate().launch(stream)
    stream.synchronize()
    found = target.read()
    print(found[:4096].sum(), found[4096:6144].sum(), found[6144:].sum())


CASES = {
    case.__name__: case
    for case in (
        *(capture, foreign_streams, update, by_hand, arguments, described, errors, invalidated),
        *(
            memory,
            lifetimes,
            host_arrays,
            exit_with_everything,
            threads,
            shared_memory,
            indirect,
            rows,
        ),
    )
}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
    print("done")
