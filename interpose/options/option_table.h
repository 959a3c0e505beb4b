/*
 * Every option of the recorder, once. C includes this file with OPTION or a rule defined as what it
 * needs of it; the build makes ttanalyze/_options.py of it, of which the options of `record`, their
 * help and the reference are made.
 *
 * OPTION(NAME, field, KIND, limit, default, METAVAR, help): the variable TT_NAME and the option
 * --name give options.field. Values are read in this order.
 *
 *	SWITCH    0 or 1
 *	COUNT     a whole number of 32 bits, at most `limit`
 *	RANK      the same; the field is one more, and 0 where none is given
 *	SEED      a whole number of 64 bits
 *	CHOICE    a word of `limit`; the enumerators in options.h have the same order
 *	WORDS     words of `limit`, separated by commas: a bit for each, in this order
 *	RANGE     N or A:B, both ends included
 *	PERCENT   a share such as 5% or 0.5%, at most `limit`; the field has thousandths of a percent
 *	SIZE      bytes such as 64M or 2GiB, at least `limit`
 *	DISK      auto, off, or as SIZE
 *	COMPRESS  off, device, or a whole number, at most `limit`
 *	FILL      off, keep, zero, ones or pattern:N, where N is as SEED
 *	TIME_NS   such as 50us, at most `limit`; a number alone, `limit` and the field are nanoseconds
 *	TIME_MS   the same in milliseconds
 *	TIME_S    the same in seconds; the field has milliseconds
 *	LIMITS    TIME or REGEX=TIME, separated by semicolons, as times.h says
 *	REGEX     a POSIX extended regular expression
 *	NUMBERS   whole numbers and ranges such as 0,3-5
 *	NAMES     texts separated by commas
 *	TRIGGERS, CONTENTS, CONTROL, PATTERNS, PATH   as triggers.h, control_text.h and options.c say
 *
 * Rules hold for what is given. A value "" matches every value, "!v" every value but v, and "!" any value.
 *
 * IMPLIES(A, value, B, other): where A has this value, the default of B is `other`.
 * NEEDS(A, value, B, other, why): where A has this value, B has to have `other`.
 * TUNES(A, B, C, done): the option --a does nothing unless B or C is given: nothing would be `done`. The recorder
 * accepts it.
 */
/* clang-format off */
#ifndef OPTION
#define OPTION(...)
#endif
#ifndef IMPLIES
#define IMPLIES(...)
#endif
#ifndef NEEDS
#define NEEDS(...)
#endif
#ifndef TUNES
#define TUNES(...)
#endif

OPTION(OUT, out, PATH, "", "", "DIR", "Write the run to this directory (default PROGRAM.tt).")
OPTION(EPOCH, epoch, TRIGGERS, "", "sync", "WHEN",
       "When to cut an epoch: sync (default), launch[:N] (after each Nth launch), graph (after each launch of a graph), "
       "memcpy, api (only where the program asks for it), none, kernel:REGEX (before and after these kernels), "
       "graph-node:REGEX (after these kernels inside graphs), nvtx:REGEX (at the end of these ranges, and at these marks; "
       "MESSAGE or DOMAIN/MESSAGE). "
       "@FROM-TO limits all triggers to the time from launch FROM to launch TO of the process, counted from 1; 0 is the time "
       "before the first. Commas separate triggers. An expression takes the rest of its list; a semicolon, or another --epoch, begins a new one.")
OPTION(REGIONS, regions, CHOICE, "all|touched|named|zones", "all", "",
       "Capture all allocations (default); only those that copies and launches name (touched); only those with a name "
       "(named): --names gives parameters, buffers, gradients and the state of optimizers theirs, and activations none; or, "
       "with --zones, only zones and managed memory (zones): then an allocation in the place of a freed one of its size has the same region.")
OPTION(HOST_MEMORY, host_memory, SWITCH, "", "0", "",
       "Capture page-locked memory of the host, too, which devices can address. The host waits for each epoch.")
OPTION(ARRAYS, arrays, SWITCH, "", "0", "",
       "Capture CUDA arrays, which textures and surfaces use, too. Each epoch copies them; the copies take device memory.")
OPTION(SNAPSHOT_EVERY, snapshot_every, COUNT, "4294967295", "64", "K",
       "Store a full snapshot every K epochs (default 64; 0: only the first).")
OPTION(CONTENTS, contents, CONTENTS, "", "changed", "WHICH",
       "Contents that epochs store: of blocks that changed (changed, default), of all blocks (all), or none, only digests "
       "of regions and blocks, which verify and diff compare. none writes almost nothing to the disk. Or only some epochs "
       "have contents: the first and every Nth after it (every:N), those inside NVTX ranges and at marks (nvtx:REGEX; MESSAGE or "
       "DOMAIN/MESSAGE), or both (every:N,nvtx:REGEX). The first epoch with contents after others is a snapshot.")
OPTION(RETAIN, retain, COUNT, "4294967295", "0", "N", "Keep the contents of at least the last N epochs (default 0: of all).")
OPTION(OVERWRITE, overwrite, CHOICE, "backpressure|drop-oldest|fail", "backpressure", "",
       "What happens when the ring is full: the program waits (backpressure, default), old epochs are lost (drop-oldest), "
       "or the epoch has no contents, and the next one has its changes (fail).")
OPTION(RING_BYTES, ring_bytes, SIZE, "256K", "", "SIZE",
       "Size of the ring in device memory, such as 256M (default: from the free memory).")
OPTION(COMPRESS, compress, COMPRESS, "19", "off", "off|device|LEVEL",
       "Compress contents: on the GPU before they are copied to the host (device), or on the host with zstd (1 to 19). off or 0: no (default).")
OPTION(MAX_DISK, max_disk, DISK, "8M", "auto", "auto|off|SIZE",
       "When to stop storing contents; digests are still recorded. auto (default) keeps 5 GiB or a tenth of the disk free, "
       "whichever is more. A size, such as 20G, limits the run directory. off: when the disk is full.")
OPTION(DETERMINISTIC, deterministic, SWITCH, "", "0", "",
       "Give allocations the same addresses in each run. The same work then gives the same manifest.")
OPTION(ADDRESS_SPACE, address_space, SIZE, "64M", "", "SIZE",
       "With --deterministic: how many addresses to reserve for each device, such as 64G (default and most: 1 TiB). Allocations "
       "that do not fit have addresses of the driver.")
OPTION(FILL, fill, FILL, "", "off", "off|keep|zero|ones|pattern:N",
       "Fill new allocations before the program gets them: with zeros (zero), with 0xFF bytes (ones), or with bytes that depend on "
       "their address and on seed N (pattern:N). A program that reads uninitialised memory then shows it (default off: memory is "
       "as the driver gives it, and zero with --deterministic). keep: memory has what it had, with --deterministic too.")
OPTION(ZONES, zones, SIZE, "256", "", "SIZE",
       "Surround each allocation with zones of this size, such as 256, and hold back freed memory, both filled with a "
       "pattern that epochs capture: what changes there was written out of bounds. Implies --deterministic.")
OPTION(GUARD, guard, CHOICE, "off|4|8|16|32|64|128|256", "off", "",
       "Place each allocation so that its end, rounded up to this many bytes, lies before unmapped memory: what reads or writes "
       "past the end fails there. Freed memory is unmapped, too. 16 suits kernels that load up to 16 bytes at once; with 256 "
       "allocations have CUDA's usual alignment (default off). Implies --deterministic and --params.")
OPTION(DEPS, deps, CHOICE, "off|device|region", "device", "",
       "What waits for a capture: launches that name memory it reads (region, default with --regions touched), all later "
       "work (device, default), or nothing (off: contents may be torn).")
OPTION(EVENTS, events, SWITCH, "", "1", "", "Record driver calls (default).")
OPTION(CPU_CALLSTACK, callstacks, CHOICE, "off|auto|python|backtrace|mixed|pytorch|auto_gil|1|0", "off", "",
       "Record the call stack of each call: Python's (python), the native one (backtrace), both in one stack (mixed), "
       "Python's where there is one, else the native one (auto), or none (off, default). "
       "pytorch is auto, but asks PyTorch's CapturedTraceback where the thread has the interpreter's lock. auto_gil and 1 are "
       "other names of auto, 0 of off.")
OPTION(KERNEL_EVENTS, kernel_events, CHOICE, "dedup|full|nostack|off", "dedup", "",
       "Record launches of kernels with call stacks, which `events` writes once each (dedup, default) or with each launch "
       "(full), without stacks (nostack), or not at all (off; launches of graphs are recorded). "
       "dedup or full implies --cpu-callstack auto.")
OPTION(PARAMS, params, SWITCH, "", "0", "", "Record the parameters of launches. They tell which launches may have written to memory.")
OPTION(HOST_WRITES, host_writes, SWITCH, "", "0", "",
       "Record when page-locked memory that an asynchronous copy to a device reads has other bytes than at the call, before "
       "the program waited for the copy. Looks at up to 16 blocks of 64 KiB of each of the last 64 copies.")
OPTION(REPLAYABLE, replayable, SWITCH, "", "0", "",
       "Record launches so that each can be run again alone: memory before and after it, its code and its settings. "
       "Implies --deterministic, --params and --epoch none.")
OPTION(KERNEL, kernel, REGEX, "", "", "REGEX",
       "With --replayable: only launches of kernels whose mangled name matches (default: all).")
OPTION(MAX_PER_KERNEL, max_per_kernel, COUNT, "4294967295", "", "N",
       "With --replayable: only the first N launches of each kernel (default 3; 0: all).")
OPTION(CRASH_SAFE, crash_safe, SWITCH, "", "0", "",
       "With --replayable: each launch waits until its memory is on disk, so that a launch that crashes can be run again.")
OPTION(NVTX, nvtx, SWITCH, "", "1", "", "Record NVTX ranges and marks (default).")
OPTION(TIMELINE, timeline, CHOICE, "off|events|cupti", "off", "",
       "Record when the GPU ran the work: with CUPTI, which also sees kernels inside graphs, with events around "
       "each call, or not (default).")
OPTION(GRAPH_STAMPS, stamps, REGEX, "", "", "REGEX",
       "Record when kernels whose name matches ran inside graphs, by the device's clock. Implies --timeline events. "
       "CUPTI has these times already.")
OPTION(NAMES, names, SWITCH, "", "0", "",
       "Name memory by the program's Python objects: tensors of PyTorch's modules and optimizers, as ttanalyze.torch.watch does, and "
       "arrays of JAX, CuPy and PyTorch in variables. Adds hooks to modules, and a thread to the program.")
OPTION(CONTROL, control, CONTROL, "", "", "SETTINGS",
       "Settings at the start, which the program can change with tt_control: points=on|off, stamps=on|off, regions=..., "
       "snapshot=N, separated by semicolons.")
OPTION(LAUNCH_DELAY, launch_delay_ns, TIME_NS, "1000000000", "0", "TIME",
       "Delay half of all launches, copies and sets, chosen at random, by this time, such as 500us. "
       "A program that lacks a dependency between streams then shows it.")
OPTION(LAUNCH_DELAY_MODE, launch_delays, CHOICE, "both|stream|host", "both", "",
       "What --launch-delay delays: the stream before the work, the thread before the call, or either (both, default).")
OPTION(DELAY_SEED, delay_seed, SEED, "", "0", "N",
       "Seed of the random choice of delays (default 0). The same seed delays the same calls.")
OPTION(DELAY, delay_ns, TIME_NS, "100000000", "0", "TIME",
       "Delay warps inside kernels by up to this time, such as 10us, before half of the instructions that move memory or "
       "synchronise, chosen at random.")
OPTION(DELAY_MIN, delay_min_ns, TIME_NS, "100000000", "0", "TIME", "The shortest random delay (default 0).")
OPTION(DELAY_MODE, delay_mode, CHOICE, "random|fixed|cluster|cluster_fixed", "random", "",
       "How long --delay is: random for each warp (default), or the same for all (fixed); cluster and cluster_fixed are the same, "
       "but only in one block of each cluster.")
OPTION(DELAY_CLUSTER_BLOCK, delay_cluster_block, RANK, "4294967294", "", "N",
       "With cluster or cluster_fixed: the rank of the delayed block in its cluster, from 0. It overrides the blocks of "
       "--delay-load (default: random for each instruction).")
OPTION(DELAY_PATTERNS, delay_patterns, PATTERNS, "", "", "NAMES",
       "Delay these instructions instead, such as UTMALDG,SYNCS, or * for all.")
OPTION(DELAY_KERNEL, delay_kernel, REGEX, "", "", "REGEX", "Delay only inside kernels whose mangled name matches.")
OPTION(DELAY_LOAD, delay_load, PATH, "", "", "FILE",
       "Use exactly the delays of this file, in kernels and of calls; --delay-dump writes such a file. For one of CUTracer, which "
       "has no mode, --delay-mode and --delay-min hold.")
OPTION(NVDISASM, nvdisasm, PATH, "", "", "FILE",
       "With a file of CUTracer: the program nvdisasm, whose text of the code has the checksums in it (default: where `sass` "
       "finds it).")
OPTION(KERNEL_FILTERS, kernel_filters, NAMES, "", "", "NAMES",
       "Trace, delay or make replayable only kernels whose mangled or demangled name has one of these texts, such as gemm,_Z3add. "
       "Commas separate texts (default: all).")
OPTION(KERNEL_NAMES, kernel_names, NAMES, "", "", "NAMES",
       "Trace, delay or make replayable only kernels with exactly these mangled names, such as _Z3addPf,_Z4gemmPfS_. Commas "
       "separate names (default: all).")
OPTION(INSTRUMENT, instrument, WORDS, "opcode|registers|addresses|values|tma|count|heartbeat", "", "KINDS",
       "Trace what instructions of kernels do, for each warp: which were executed (opcode), their operands (registers), "
       "addresses of memory accesses (addresses), with what is read or written (values), bulk tensor copies (tma), how "
       "often each was executed (count), or only what each warp does now, for reports of hangs (heartbeat; --timeout, "
       "--kernel-timeout and --no-progress imply it). Commas separate kinds. Implies --epoch none.")
OPTION(INSTRUMENT_KERNEL, instrument_kernel, REGEX, "", "", "REGEX",
       "Trace only kernels whose mangled name matches (default: all).")
OPTION(INSTRUMENT_LAUNCH, instrument_launch, COUNT, "4294967295", "0", "N",
       "Trace only the Nth launch of these kernels, from 1 (default 0: all).")
OPTION(INSTRUMENT_EVERY, instrument_every, COUNT, "4294967295", "0", "N", "Trace each Nth launch of these kernels (default 0: each).")
OPTION(INSTRUMENT_INSTRUCTIONS, instrument_instructions, RANGE, "", "", "A:B",
       "Trace only these instructions: offsets in the machine code divided by 16, or lines of PTX on the simulator.")
OPTION(INSTRUMENT_CATEGORY, instrument_category, WORDS, "memory|sync|control|mma|tma|other", "", "CATEGORIES",
       "Trace only instructions that access memory (memory), synchronise (sync), branch, call or end (control), multiply "
       "matrices (mma), copy tensors (tma), or do none of that (other).")
OPTION(INSTRUMENT_BLOCKS, instrument_blocks, RANGE, "", "", "A:B",
       "Trace only these blocks of a grid, numbered with x first.")
OPTION(INSTRUMENT_ADDRESSES, instrument_addresses, RANGE, "", "", "A:B",
       "Keep only records of accesses to these device addresses, such as 0x7f00:0x7fff. Records without addresses are all kept.")
OPTION(INSTRUMENT_RECORDS, instrument_records, COUNT, "4294967295", "0", "N",
       "Stop tracing after this many records (default: 100000000).")
OPTION(INSTRUMENT_RING, instrument_ring, SIZE, "2M", "", "SIZE",
       "Device memory for records that are not on disk yet, rounded up to a power of two (default 64M).")
OPTION(INSTRUMENT_WAY, instrument_way, CHOICE, "auto|patcher|sanitizer", "auto", "",
       "What inserts the code that records on a GPU: ttanalyze itself (patcher; kernels of sm_90) or NVIDIA's Sanitizer API "
       "(sanitizer; no counts, no registers, of bulk copies only loads by tensor maps); auto (default): the latter, but the "
       "patcher for count and registers, or where the library of the Sanitizer API is missing.")
OPTION(INSTRUMENT_LIBRARY, instrument_library, PATH, "", "", "FILE",
       "The library of NVIDIA's Sanitizer API, libsanitizer-public.so, which inserts the code that records on a GPU (default: "
       "that of the Python package nvidia-cuda-sanitizer-api).")
OPTION(MAX_OVERHEAD, max_overhead, PERCENT, "1000", "", "PERCENT",
       "Skip epochs, but no events, so that recording costs the program at most this share of its time, such as 5%. A skipped epoch "
       "keeps its number and has no contents; the next epoch has its changes. The first and the last epoch are never skipped (default: skip none).")
OPTION(OVERHEAD_ALLOWANCE, overhead_allowance_ms, TIME_MS, "4294967295", "0", "TIME",
       "With --max-overhead: skip no epoch before recording has cost the program this time, such as 500ms (default 0).")
OPTION(THREAD_CORES, thread_cores, NUMBERS, "", "", "LIST",
       "Run the recorder's threads only on these cores, such as 14-15 (default: on those that the program may use).")
OPTION(THREAD_PRIORITY, thread_priority, CHOICE, "normal|idle", "normal", "",
       "Priority of the recorder's threads: that of the program (normal, default), or only when a core has nothing else to do (idle).")
OPTION(HOLD, hold, PATH, "", "", "FILE",
       "Hold the program at the call where recording begins, as long as another process has a lock on this file (flock). "
       "So a program can be started before it is time to use the GPU.")
OPTION(STALL_MS, stall_ms, TIME_MS, "4294967295", "10000", "TIME", "Give up an epoch after this wait, such as 30s (default 10s).")
OPTION(TIMEOUT, timeout_ms, TIME_S, "1000000000", "0", "TIME",
       "End a program that runs longer, such as 90s or 5m, with the processes that it started, by SIGTERM, and say what it waited for "
       "(default 0: no limit).")
OPTION(KERNEL_TIMEOUT, kernel_timeout, LIMITS, "", "", "LIMITS",
       "End a program, as --timeout does, when a launch of a kernel runs longer, such as 30s; or only of kernels whose mangled "
       "name matches, such as ^gemm=500ms. Semicolons separate limits, of which the first that fits a kernel counts. "
       "Implies --timeline events.")
OPTION(NO_PROGRESS, no_progress_ms, TIME_S, "1000000000", "0", "TIME",
       "End a program, as --timeout does, when for this time no work of the GPU ended although there is some, and, where "
       "`instrument` traces its kernels, each of their warps waits or repeats a loop without any change (default 0: no limit). "
       "Implies --timeline events.")
OPTION(RANKS, ranks, NUMBERS, "", "", "LIST",
       "Record only these ranks of a job, such as 0,3-5. The rank is that of torchrun, accelerate, DeepSpeed, mpirun or srun "
       "(default: all processes).")
OPTION(ENTRY, entry, CHOICE, "auto|preload|stubs|cupti", "auto", "",
       "How the recorder sees the program's calls: preload (LD_PRELOAD), stubs (the driver loads the recorder, which replaces the "
       "driver's entry points), or cupti (the driver loads it, and CUPTI calls it around each call; it can't change calls then). "
       "auto (default): the first of these that works.")
OPTION(VERBOSE, verbose, SWITCH, "", "0", "", "Print what the recorder does.")

IMPLIES(INSTRUMENT, "", EPOCH, "none")
IMPLIES(REPLAYABLE, "1", EPOCH, "none")
IMPLIES(REPLAYABLE, "1", PARAMS, "1")
IMPLIES(REPLAYABLE, "1", DETERMINISTIC, "1")
IMPLIES(REPLAYABLE, "1", MAX_PER_KERNEL, "3")
IMPLIES(ZONES, "", DETERMINISTIC, "1")
IMPLIES(GUARD, "!off", DETERMINISTIC, "1")
IMPLIES(GUARD, "!off", PARAMS, "1")
IMPLIES(REGIONS, "touched", DEPS, "region")
IMPLIES(REGIONS, "named", NAMES, "1")
IMPLIES(CONTENTS, "all", SNAPSHOT_EVERY, "1")
IMPLIES(KERNEL_EVENTS, "dedup", CPU_CALLSTACK, "auto")
IMPLIES(KERNEL_EVENTS, "full", CPU_CALLSTACK, "auto")
IMPLIES(GRAPH_STAMPS, "", TIMELINE, "events")
IMPLIES(KERNEL_TIMEOUT, "", TIMELINE, "events")
IMPLIES(NO_PROGRESS, "", TIMELINE, "events")

NEEDS(KERNEL, "", REPLAYABLE, "1", "")
NEEDS(MAX_PER_KERNEL, "", REPLAYABLE, "1", "")
NEEDS(CRASH_SAFE, "", REPLAYABLE, "1", "")
NEEDS(REPLAYABLE, "1", EVENTS, "1", "launches are recorded as events")
NEEDS(REPLAYABLE, "1", PARAMS, "1", "a launch is run again with its parameters")
NEEDS(REPLAYABLE, "1", DETERMINISTIC, "1", "a replay needs the same addresses")
NEEDS(REPLAYABLE, "1", REGIONS, "all", "a launch may read any allocation")
NEEDS(REPLAYABLE, "1", RETAIN, "0", "all contents are needed")
NEEDS(REPLAYABLE, "1", HOST_MEMORY, "0", "replays have no memory of the host")
NEEDS(REPLAYABLE, "1", ARRAYS, "0", "replays have no arrays")
NEEDS(ZONES, "", DETERMINISTIC, "1", "the recorder allocates the memory between zones")
NEEDS(ZONES, "", REGIONS, "!touched", "a zone is changed by work that does not name it")
NEEDS(ZONES, "", REGIONS, "!named", "zones have no names")
NEEDS(REGIONS, "zones", ZONES, "!", "")
NEEDS(ZONES, "", REPLAYABLE, "0", "replays allocate memory without zones")
NEEDS(GUARD, "!off", DETERMINISTIC, "1", "the recorder allocates the memory before guards")
NEEDS(GUARD, "!off", REPLAYABLE, "0", "replays allocate memory without guards")
NEEDS(ZONES, "", GUARD, "off", "a zone and unmapped memory can't both follow an allocation")
NEEDS(CONTENTS, "all", SNAPSHOT_EVERY, "1", "each epoch is a snapshot")
NEEDS(REPLAYABLE, "1", KERNEL_EVENTS, "!off", "launches are recorded as events")
NEEDS(REPLAYABLE, "1", OVERWRITE, "backpressure", "all contents are needed")
NEEDS(REPLAYABLE, "1", DEPS, "!off", "epochs would be torn")
NEEDS(GRAPH_STAMPS, "", EVENTS, "1", "stamps belong to recorded calls")
NEEDS(GRAPH_STAMPS, "", TIMELINE, "!off", "stamps are part of the timeline")
NEEDS(MAX_OVERHEAD, "", REPLAYABLE, "0", "a replayable launch needs the epochs around it")
NEEDS(MAX_OVERHEAD, "", OVERWRITE, "!drop-oldest", "an epoch in the ring depends on the one before it")
NEEDS(TIMELINE, "!off", EVENTS, "1", "times belong to recorded calls")
NEEDS(KERNEL_TIMEOUT, "", TIMELINE, "events", "events say at once what has ended")
NEEDS(NO_PROGRESS, "", TIMELINE, "events", "events say at once what has ended")
NEEDS(INSTRUMENT, "", EVENTS, "1", "traces belong to recorded launches")
NEEDS(INSTRUMENT, "", KERNEL_EVENTS, "!off", "traces belong to recorded launches")
NEEDS(KERNEL_EVENTS, "!off", EVENTS, "1", "launches are recorded as events")
NEEDS(PARAMS, "1", KERNEL_EVENTS, "!off", "parameters belong to recorded launches")
NEEDS(HOST_WRITES, "1", EVENTS, "1", "changes are recorded as events")
NEEDS(PARAMS, "1", EVENTS, "1", "parameters belong to recorded launches")
NEEDS(DETERMINISTIC, "1", OVERWRITE, "backpressure", "which epochs are lost depends on timing")
NEEDS(ENTRY, "cupti", DETERMINISTIC, "0", "CUPTI can't change where memory is allocated")
NEEDS(ENTRY, "cupti", DELAY, "0", "CUPTI can't change the code that a program loads")
NEEDS(ENTRY, "cupti", TIMELINE, "!cupti", "CUPTI calls one function for each call")
NEEDS(DELAY_LOAD, "", ENTRY, "!cupti", "CUPTI can't change the code that a program loads")
NEEDS(CPU_CALLSTACK, "backtrace", ENTRY, "!cupti", "the recorder has a stack of its own then")
NEEDS(CPU_CALLSTACK, "mixed", ENTRY, "!cupti", "the recorder has a stack of its own then")
NEEDS(GRAPH_STAMPS, "", ENTRY, "!cupti", "CUPTI can't change graphs")
NEEDS(INSTRUMENT, "", ENTRY, "!cupti", "CUPTI can't change the code that a program loads")
NEEDS(DELAY_LOAD, "", DELAY, "0", "the file has all delays")
NEEDS(DELAY_LOAD, "", LAUNCH_DELAY, "0", "the file has all delays")

TUNES(LAUNCH_DELAY_MODE, LAUNCH_DELAY, LAUNCH_DELAY, "delayed")
TUNES(DELAY_SEED, DELAY, LAUNCH_DELAY, "delayed")
TUNES(DELAY_MODE, DELAY, DELAY_LOAD, "delayed")
TUNES(DELAY_MIN, DELAY, DELAY_LOAD, "delayed")
TUNES(DELAY_CLUSTER_BLOCK, DELAY, DELAY_LOAD, "delayed")
TUNES(NVDISASM, DELAY_LOAD, DELAY_LOAD, "delayed")
TUNES(DELAY_PATTERNS, DELAY, DELAY, "delayed")
TUNES(DELAY_KERNEL, DELAY, DELAY, "delayed")
TUNES(INSTRUMENT_KERNEL, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_LAUNCH, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_EVERY, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_INSTRUCTIONS, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_CATEGORY, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_BLOCKS, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_ADDRESSES, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_RECORDS, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_RING, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_WAY, INSTRUMENT, INSTRUMENT, "traced")
TUNES(INSTRUMENT_LIBRARY, INSTRUMENT, INSTRUMENT, "traced")

#undef OPTION
#undef IMPLIES
#undef NEEDS
#undef TUNES
