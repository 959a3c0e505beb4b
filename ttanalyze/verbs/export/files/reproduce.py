"""Launches one recorded kernel again, alone, on the memory that it found, and compares what it
leaves with the recorded result: python reproduce.py [--times K]

Needs cuda-python. launch.py says what is launched, README.md where it comes from. Exit status:
0 as recorded, 1 different, 2 it could not be run.
"""

import argparse
import ctypes
import statistics
import struct
import sys
from pathlib import Path

import launch
from cuda.bindings import driver

HERE = Path(__file__).resolve().parent
HEAD = struct.Struct("<4Q")
SHOWN = 8  # differences of a region
POINTER, SIZE, END = 1, 2, 0  # CU_LAUNCH_PARAM_…


class DriverError(Exception):
    pass


def call(name, *arguments):
    """Makes a call of the driver and gives what it gives."""
    result, *values = getattr(driver, name)(*arguments)
    if int(result):
        raise DriverError(f"{name}: {getattr(result, 'name', result)}")
    return values[0] if len(values) == 1 else values


def address_of(data):
    """Where a bytearray lies."""
    return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))


def read_contents(name, images):
    """A file of contents is pieces: four 64-bit numbers, and `length` bytes, which repeat
    themselves until `size` bytes are full.
    """
    data = (HERE / name).read_bytes()
    at = 0
    while at < len(data):
        region, offset, size, length = HEAD.unpack_from(data, at)
        part = data[at + HEAD.size : at + HEAD.size + length]
        images[region][offset : offset + size] = (part * -(-size // length))[:size]
        at += HEAD.size + length


def location():
    where = driver.CUmemAllocationProp()
    where.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    where.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    where.location.id = 0
    return where


def reserve(begin, end, known):
    """Reserves addresses. Drivers place small ranges where they like, so larger ones around them
    are tried too. known: those that are reserved already.
    """
    if any(first <= begin and end <= last for first, last in known):
        return
    for unit in (1, 1 << 30, 1 << 40):
        first, last = begin // unit * unit, -(-end // unit) * unit
        try:
            got = int(call("cuMemAddressReserve", last - first, 0, first, 0)) if first else 0
        except DriverError:
            continue
        if got and got == first:
            known.append((first, last))
            return
        if got:
            call("cuMemAddressFree", got, last - first)
    what = f"{end - begin} bytes at {begin:#x}"
    raise DriverError(f"{what}: the driver does not give these addresses; another run may get them")


def map_regions():
    """Memory of the device at the addresses of all allocations, which pointers in memory need."""
    least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    unit = call("cuMemGetAllocationGranularity", location(), least)
    spans = []
    for address, size, variable, _ in launch.REGIONS:
        begin, end = address // unit * unit, -(-(address + size) // unit) * unit
        if variable:
            continue
        if spans and begin <= spans[-1][1]:
            begin, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((begin, end))
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = 0
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    known = []
    for begin, end in spans:
        size = end - begin
        reserve(begin, end, known)
        memory = call("cuMemCreate", size, location(), 0)
        call("cuMemMap", begin, size, 0, memory, 0)
        call("cuMemSetAccess", begin, size, [access], 1)
        call("cuMemsetD8", begin, 0, size)


def find_variables(module, params, images):
    """Where regions are now. Variables hold what the module says, and parameters that lead to them
    do so again.
    """
    addresses = []
    for image, (address, size, variable, _) in zip(images, launch.REGIONS, strict=True):
        if variable:
            address, found = call("cuModuleGetGlobal", module, variable.encode())
            if found != size:
                raise DriverError(f"{variable} has another size")
            call("cuMemcpyDtoH", address_of(image), address, size)
        addresses.append(int(address))
    for at, region in launch.POINTERS:
        (address,) = struct.unpack_from("<Q", params, at)
        address += addresses[region] - launch.REGIONS[region][0]
        struct.pack_into("<Q", params, at, address)
    return addresses


def load_module(image):
    options = [driver.CUjit_option(number) for number, _ in launch.JIT_OPTIONS]
    values = [value for _, value in launch.JIT_OPTIONS]
    where = address_of(image)
    return call("cuModuleLoadDataEx", where, len(options), options, values)


def find_kernel(module):
    for number, value in launch.LIMITS:  # only what is not so already: not all can be set
        if call("cuCtxGetLimit", driver.CUlimit(number)) != value:
            call("cuCtxSetLimit", driver.CUlimit(number), value)
    kernel = call("cuModuleGetFunction", module, launch.KERNEL.encode())
    for number, value in launch.FUNCTION_ATTRIBUTES:
        which = driver.CUfunction_attribute(number)
        if call("cuFuncGetAttribute", which, kernel) != value:
            call("cuFuncSetAttribute", kernel, which, value)
    call("cuFuncSetCacheConfig", kernel, driver.CUfunc_cache(launch.CACHE))
    return kernel


def configuration():
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.GRID
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.BLOCK
    config.sharedMemBytes = launch.SHARED
    attributes = []
    for number, value in launch.LAUNCH_ATTRIBUTES:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID(number)
        attribute.value.pad = value.ljust(64, b"\0")
        attributes.append(attribute)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


class Launcher:
    """Launches on memory as it was recorded."""

    def __init__(self, images):
        call("cuInit", 0)
        device = call("cuDeviceGet", 0)
        call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", device))
        map_regions()
        self.images = images
        self.params = bytearray((HERE / "params.bin").read_bytes())
        self.image = bytearray((HERE / launch.IMAGE).read_bytes() + b"\0")
        module = load_module(self.image)
        self.addresses = find_variables(module, self.params, images)
        read_contents("before.bin", images)
        self.kernel = find_kernel(module)
        self.config = configuration()
        self.events = [call("cuEventCreate", 0) for _ in range(2)]
        self.size = ctypes.c_size_t(len(self.params))
        words = (POINTER, address_of(self.params), SIZE, ctypes.addressof(self.size), END)
        self.extra = (ctypes.c_void_p * 5)(*words)

    def run(self):
        """Restores memory, launches and waits; gives the milliseconds that it took."""
        for address, image in zip(self.addresses, self.images, strict=True):
            call("cuMemcpyHtoD", address, address_of(image), len(image))
        begin, end = self.events
        call("cuEventRecord", begin, 0)
        extra = ctypes.addressof(self.extra) if len(self.params) else 0
        call("cuLaunchKernelEx", self.config, self.kernel, 0, extra)
        call("cuEventRecord", end, 0)
        call("cuCtxSynchronize")
        return call("cuEventElapsedTime", begin, end)


def compare(address, name, expected):
    """How many bytes of a region are not as recorded; prints the first of them."""
    found = bytearray(len(expected))
    call("cuMemcpyDtoH", address_of(found), address, len(found))
    if found == expected:
        return 0
    size = sum(a != b for a, b in zip(found, expected, strict=True))
    print(f"{name}: {size} of {len(found)} bytes differ")
    shown = 0
    for at in range(0, len(found), 4):
        now, was = (int.from_bytes(data[at : at + 4], "little") for data in (found, expected))
        if now != was and shown < SHOWN:
            print(f"  at {at:<10} is {now:08x}, was {was:08x}")
            shown += 1
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--times", type=int, default=0, metavar="K")
    count = parser.parse_args().times
    images = [bytearray(size) for _, size, _, _ in launch.REGIONS]
    launcher = Launcher(images)
    launcher.run()
    times = [launcher.run() for _ in range(count)]
    if times:
        span = f"{min(times):.4f} to {max(times):.4f} ms"
        print(f"{count} times: median {statistics.median(times):.4f} ms, {span}")
    if not launch.EXPECTED:
        print(f"{launch.KERNEL}: not compared, because the result is unknown")
        return 0
    read_contents("after.bin", images)
    names = [name for _, _, _, name in launch.REGIONS]
    differ = sum(map(compare, launcher.addresses, names, images))
    print(f"{launch.KERNEL}: {'different' if differ else 'as recorded'}")
    return 1 if differ else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DriverError as e:
        sys.exit(print(e, file=sys.stderr) or 2)
