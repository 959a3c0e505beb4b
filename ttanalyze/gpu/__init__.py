"""CUDA graphs from Python, on a GPU or on the simulator, and graphs made of recorded work.

    from ttanalyze.graph import DeviceBuffer, Module, StreamCapture

    module, memory = Module.load("kernels.ptx"), DeviceBuffer(4096)
    with StreamCapture.begin() as capture:
        capture.record_memset(4096, 0, memory)
        capture.record_kernel("fill", grid=4, block=256, args=(memory, 1024, 7))
    executable = capture.graph.instantiate()
    executable.launch()
    memory.read("u4")

The driver is loaded when the first device, buffer, module or stream is made.
"""

from ttanalyze.gpu.capture import StreamCapture
from ttanalyze.gpu.device import Device, Stream
from ttanalyze.gpu.driver import (
    CudaError,
    Driver,
    DriverError,
    EndedError,
    MissingDriverError,
    driver,
    simulator,
)
from ttanalyze.gpu.graph import Graph
from ttanalyze.gpu.graph_exec import GraphExec
from ttanalyze.gpu.memory import DeviceBuffer
from ttanalyze.gpu.module import Function, Module
from ttanalyze.gpu.nodes import GraphNode
from ttanalyze.gpu.rebuild.graph import Check, Rebuilt
from ttanalyze.gpu.work import MemcpyDirection

__all__ = [
    "Check",
    "CudaError",
    "Device",
    "DeviceBuffer",
    "Driver",
    "DriverError",
    "EndedError",
    "Function",
    "Graph",
    "GraphExec",
    "GraphNode",
    "MemcpyDirection",
    "MissingDriverError",
    "Module",
    "Rebuilt",
    "Stream",
    "StreamCapture",
    "driver",
    "simulator",
]
