/*
 * Every structure that ttanalyze stores in a run directory or in the capture ring.
 *
 * This header is the only definition of the format: the recorder compiles it, and the build gives the same
 * text to cffi, from which the Python toolkit derives its numpy dtypes. It therefore has only plain
 * constants, enumerations, lists of the form `LIST(X)` and structures of fixed-width members without
 * implicit padding. docs/format.md describes the meaning of each byte.
 *
 * All integers are little-endian. All offsets and sizes are in bytes unless stated otherwise.
 */
#ifndef TT_FORMAT_H
#define TT_FORMAT_H

#include <stdint.h>

#define TT_FORMAT_VERSION 1
#define TT_BLOCK_SIZE 65536     /* bytes of a region that one digest covers */
#define TT_CHUNK_ALIGN 32       /* alignment of chunks and block payloads in the ring */
#define TT_FILE_HEADER_SIZE 64
#define TT_NO_ID 0xffffffff     /* "none" in each 32-bit id member */
#define TT_NO_CALL 0xffff       /* "none" in tt_event.call */
#define TT_NO_EPOCH 0xffffffff
#define TT_NO_SEGMENT 0xfffffffc /* tt_epoch.segment: only digests of its blocks were stored */
#define TT_TEXT_HEAD 8          /* bytes before a text in strings.bin: u32 length, u32 check (low half of its XXH3-64) */
#define TT_PIECE_HEAD 8         /* bytes before a piece of params.bin: its XXH3-64 */

/* ---- file header: the first 64 bytes of every binary file ---- */

/* tt_file_header.kind */
enum tt_file_kind {
	TT_FILE_EVENTS = 1,    /* events.bin     tt_event records, slots claimed per thread */
	TT_FILE_REGIONS = 2,   /* regions.bin    tt_region records, births and deaths of regions */
	TT_FILE_EPOCHS = 3,    /* epochs.bin     tt_epoch records; appending one commits the epoch */
	TT_FILE_DIGESTS = 4,   /* digests.bin    tt_digest records, digests of regions that changed */
	TT_FILE_BLOCKS = 5,    /* blocks.bin     tt_block records, blocks that changed */
	TT_FILE_DATA = 6,      /* data-NNNNN.bin block contents, raw */
	TT_FILE_FUNCTIONS = 7, /* functions.bin  tt_function records, one per kernel seen */
	TT_FILE_MODULES = 8,   /* modules.bin    tt_module records, one per image loaded */
	TT_FILE_STRINGS = 9,   /* strings.bin    texts: a header, then UTF-8 bytes without a terminator */
	TT_FILE_PARAMS = 10,   /* params.bin     pieces, each with a header: parameters of launches, settings, views */
	TT_FILE_FRAMES = 11,   /* frames.bin     tt_frame records, the frames of each call stack in order */
	TT_FILE_TIMELINE = 12, /* timeline.bin   tt_activity records, GPU times of work */
	TT_FILE_LABELS = 13,   /* labels.bin     tt_label records, names of parts of regions */
	TT_FILE_GRAPHS = 14,   /* graphs.bin     tt_graph_record records, executable graphs and their nodes */
	TT_FILE_GRAPH_DATA = 15, /* graphdata.bin  parameters and edges of these graphs */
	TT_FILE_LAUNCHES = 16, /* launches.bin   tt_launch records, launches that can be replayed */
	TT_FILE_TRACE = 17,    /* trace.bin      chunks of tt_trace_record records, what instructions of traced launches did */
	TT_FILE_TRACED = 18,   /* traced.bin     tt_traced records, launches that were to be traced */
	TT_FILE_TENSOR_MAPS = 19 /* tensormaps.bin tt_tensor_map records, what the program encoded before traced launches */
};

/* tt_file_header.encoding: how a data file stores the contents of a block */
enum tt_encoding {
	TT_ENCODING_PLAIN = 0, /* as they were */
	TT_ENCODING_ZSTD = 1,  /* u32 size, then a zstd frame of that size; or the plain contents if size is the block's length */
	TT_ENCODING_PLANES = 2 /* the same with bit planes of groups in place of the frame */
};

struct tt_file_header {
	uint8_t magic[8];     /* "TTRUN" 0x0d 0x0a 0x1a */
	uint32_t version;     /* TT_FORMAT_VERSION */
	uint32_t kind;        /* enum tt_file_kind */
	uint32_t header_size; /* TT_FILE_HEADER_SIZE; records begin here */
	uint32_t record_size; /* bytes of a record; 1 for data and strings */
	uint32_t index;       /* NNNNN of data-NNNNN.bin, else 0 */
	uint32_t encoding;    /* of data files: enum tt_encoding; else 0 */
	uint64_t created_ns;  /* CLOCK_REALTIME; 0 in deterministic runs */
	uint8_t reserved[16];
	uint64_t check;       /* XXH3-64 of the preceding 56 bytes */
};

/* ---- events ---- */

/* Properties of kinds of events. A reader that treats several kinds alike asks for one of these. */
enum tt_kind_property {
	TT_KIND_WORK = 1,       /* a stream executes it: on the device, or as a host function */
	TT_KIND_WRITES = 2,     /* work that may change device memory */
	TT_KIND_STREAM = 4,     /* it is submitted to a stream: work, and calls that order streams */
	TT_KIND_TIMED = 8,      /* has a tt_activity record */
	TT_KIND_WAIT = 16,      /* the host waited */
	TT_KIND_LAUNCH = 32,    /* it runs kernels */
	TT_KIND_MOVE = 64,      /* it writes bytes to dst */
	TT_KIND_BIRTH = 128,    /* it creates regions */
	TT_KIND_REGION = 256,   /* dst, bytes, id = region */
	TT_KIND_MODULE = 512,   /* id = module */
	TT_KIND_GRAPH = 1024,   /* id = graph, as in tt_graph_record */
	TT_KIND_NAMED = 2048,   /* id tells calls apart: function, module, graph, epoch or text */
	TT_KIND_NVTX = 4096     /* an NVTX annotation */
};

/*
 * Each kind of event: its name, its number on disk, its properties (0: none).
 *
 * Copies have dst, src and the bytes moved. 2-D and 3-D copies also have grid = bytes of a row, rows,
 * slices; block = pitches of dst and src; cluster = rows from slice to slice of dst and src.
 *
 * Kinds with TT_KIND_NVTX have id = string offset of the message, dst = string offset of the domain
 * (TT_NO_ID: the default domain), shared = colour as ARGB (0: none), bytes = payload, grid[0] = its type
 * (enum tt_payload), grid[1] = category, where a message applies.
 */
#define TT_EVENT_KINDS(X) \
	X(NONE, 0, 0) /* an unused slot; readers skip it */ \
	X(LAUNCH, 1, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM | TT_KIND_TIMED | TT_KIND_LAUNCH | TT_KIND_NAMED) \
	X(LAUNCH_HOST, 2, TT_KIND_WORK | TT_KIND_STREAM) /* a host function or stream callback */ \
	X(GRAPH_LAUNCH, 3, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM | TT_KIND_TIMED | TT_KIND_LAUNCH | \
			   TT_KIND_GRAPH | TT_KIND_NAMED) \
	X(COPY, 4, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM | TT_KIND_TIMED | TT_KIND_MOVE) \
	/* src = value, shared = bytes of an item; 2-D sets: grid = items of a row, rows */ \
	X(SET, 5, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM | TT_KIND_TIMED | TT_KIND_MOVE) \
	X(ALLOC, 6, TT_KIND_BIRTH | TT_KIND_REGION) \
	X(FREE, 7, TT_KIND_REGION) \
	X(STREAM_CREATE, 8, 0) /* bytes = its flags; 1: it does not wait for the legacy default stream */ \
	X(STREAM_DESTROY, 9, 0) \
	X(EVENT_RECORD, 10, TT_KIND_STREAM) /* src = CUevent */ \
	X(EVENT_WAIT, 11, TT_KIND_STREAM) /* src = CUevent */ \
	X(SYNC, 12, TT_KIND_WAIT) /* a wait of the host for a context, stream or event */ \
	X(CONTEXT, 13, 0) /* created or destroyed */ \
	X(MODULE_LOAD, 14, TT_KIND_BIRTH | TT_KIND_MODULE | TT_KIND_NAMED) \
	X(MODULE_UNLOAD, 15, TT_KIND_MODULE | TT_KIND_NAMED) \
	X(MEM_OP, 16, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM) /* a stream writes a value or waits for one; dst */ \
	X(CAPTURE_BEGIN, 17, 0) /* stream capture */ \
	X(CAPTURE_END, 18, 0) \
	X(EPOCH, 19, TT_KIND_NAMED) /* an epoch was cut; id = epoch number */ \
	X(MARK, 20, TT_KIND_NVTX) \
	X(RANGE_PUSH, 21, TT_KIND_NVTX) /* begins a nested range of this thread and domain */ \
	X(RANGE_POP, 22, TT_KIND_NVTX) /* ends the innermost range; id, dst of its beginning */ \
	X(RANGE_START, 23, TT_KIND_NVTX) /* src = the range; any thread may end it */ \
	X(RANGE_END, 24, TT_KIND_NVTX) /* src = the range; id, dst of its beginning if known */ \
	X(NAME, 25, TT_KIND_NVTX) /* id = string offset of a name; dst = what it names: enum tt_named */ \
	X(GRAPH_INSTANTIATE, 26, TT_KIND_GRAPH | TT_KIND_NAMED) \
	X(GRAPH_UPDATE, 27, TT_KIND_GRAPH | TT_KIND_NAMED) /* bytes = changed nodes */ \
	X(GRAPH_DESTROY, 28, TT_KIND_GRAPH | TT_KIND_NAMED) \
	X(CONTROL, 29, TT_KIND_NAMED) /* id = string offset of the settings of tt_control, as in tt_epoch.controls */ \
	X(QUERY, 30, 0) /* the program asked whether a stream or an event is complete, and it was */ \
	/* The page-locked bytes at dst, which the copy with seq src reads, differ from those at its call: XXH3-64 of \
	   those = grid[0..1], of these = block[0..1], low half first. */ \
	X(SOURCE_CHANGE, 31, 0) \
	X(REGION_READY, 32, TT_KIND_TIMED) /* tt_region_ready: the next epoch waits for the CUevent src; id = region, dst = an address in it */

#define TT_EVENT_NUMBER(name, number, properties) TT_EVENT_##name = number,
#define TT_EVENT_PROPERTIES(name, number, properties) TT_PROPERTIES_##name = properties,

/* tt_event.kind */
enum tt_event_kind { TT_EVENT_KINDS(TT_EVENT_NUMBER) };

/* Properties of each kind, by its number. */
enum tt_event_properties { TT_EVENT_KINDS(TT_EVENT_PROPERTIES) };

/* tt_event.dst of TT_EVENT_NAME */
enum tt_named {
	TT_NAMED_THREAD = 1, /* src = kernel thread id */
	TT_NAMED_STREAM = 2  /* stream = its id */
};

/* tt_event.grid[0] of annotations: the type of the payload in bytes; 32-bit types use its low half */
enum tt_payload {
	TT_PAYLOAD_NONE = 0,
	TT_PAYLOAD_U64 = 1,
	TT_PAYLOAD_I64 = 2,
	TT_PAYLOAD_F64 = 3,
	TT_PAYLOAD_U32 = 4,
	TT_PAYLOAD_I32 = 5,
	TT_PAYLOAD_F32 = 6,
	TT_PAYLOAD_BYTES = 7 /* of an extension: grid[2] bytes, the first 32 in `bytes`, `block` and `cluster` */
};

/* tt_event.flags */
#define TT_EVENTF_CAPTURING 1     /* captured into a graph, not executed */
#define TT_EVENTF_COOPERATIVE 2
#define TT_EVENTF_SYNC_COPY 4     /* the call returned after the copy was complete */
#define TT_EVENTF_HOST_DST 8
#define TT_EVENTF_HOST_SRC 16
#define TT_EVENTF_PEER 32
#define TT_EVENTF_DESTROY 64      /* of TT_EVENT_CONTEXT */
#define TT_EVENTF_WAITED 128      /* its stream first waits for a capture that reads memory which the call may write */
#define TT_EVENTF_DELAYED 256     /* delayed by TT_LAUNCH_DELAY: the call was made later */
#define TT_EVENTF_DELAYED_STREAM 512 /* delayed by TT_LAUNCH_DELAY: the stream was blocked before its work */

struct tt_event {
	uint64_t seq;       /* position in the process-wide order of calls, from 1 */
	uint64_t time_ns;   /* CLOCK_MONOTONIC at entry to the call */
	/* These three are written last, at once. */
	uint16_t kind;      /* enum tt_event_kind */
	uint16_t call;      /* index into "calls" of process.json: the driver call; else TT_NO_CALL */
	uint32_t check;     /* low half of the record's XXH3-64, computed with 0 here */
	uint32_t thread;    /* kernel thread id */
	uint32_t result;    /* CUresult that the program got */
	uint32_t context;   /* index of the context in order of first use */
	uint32_t flags;     /* TT_EVENTF_… */
	uint64_t stream;    /* stream id: 1 legacy default, 2 per-thread default, others in order of creation from 16 */
	uint64_t dst;       /* of launches with TT_EVENTF_WAITED, the region that the capture reads; 0: any region */
	uint64_t src;
	uint64_t bytes;
	uint32_t id;        /* function, region, module, epoch or message, by kind; else TT_NO_ID */
	uint32_t shared;    /* dynamic shared memory of a launch; colour of an annotation */
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t cluster[3]; /* 0: no cluster requested */
	uint32_t params;      /* position in params.bin of the launch's parameters, in units of 16 bytes; 0: not recorded */
	uint32_t params_size; /* bytes of the parameters, in the layout that the kernel sees */
	uint32_t stack;       /* tt_frame.stack of the caller; 0: not recorded */
};

/* tt_activity.flags */
#define TT_ACTIVITYF_COARSE 1 /* bounds from events before and after it: it began no earlier and ended no later */
#define TT_ACTIVITYF_OWN 2    /* work of the recorder */
#define TT_ACTIVITYF_STAMPED 4 /* from time stamps around a node of a graph; node = 1 + its number in tt_graph_record */

/* GPU times of one piece of work. Records are in no order. */
struct tt_activity {
	uint64_t seq;      /* tt_event.seq of the call that submitted it; 0: unknown */
	uint64_t begin_ns; /* CLOCK_MONOTONIC on the device; of TT_EVENT_SYNC, of the host around the wait */
	uint64_t end_ns;
	uint64_t stream;   /* stream id; 0: unknown */
	uint64_t bytes;    /* of copies and sets */
	uint64_t node;     /* of nodes of a graph launch: the driver's node id (see the flag for stamps); else 0 */
	uint32_t kind;     /* enum tt_event_kind: launch, copy, set, graph launch (as a whole) or sync */
	uint32_t flags;    /* TT_ACTIVITYF_… */
	uint32_t context;  /* as in tt_event; TT_NO_ID: unknown */
	uint32_t device;   /* device ordinal; TT_NO_ID: unknown */
	uint32_t name;     /* string offset of a kernel's mangled name, else TT_NO_ID */
	uint32_t reserved;
	uint64_t check;    /* XXH3-64 of the preceding 72 bytes, written last; 0: an unused slot */
};

/* ---- regions ---- */

/* tt_region.op */
enum tt_region_op { TT_REGION_BORN = 1, TT_REGION_DIED = 2, TT_REGION_LABEL = 3 };

/* tt_region.kind */
enum tt_region_kind {
	TT_REGION_DEVICE = 1,   /* cuMemAlloc, cuMemAllocPitch */
	TT_REGION_MANAGED = 2,
	TT_REGION_ASYNC = 3,    /* stream-ordered, from a pool */
	TT_REGION_VMM = 4,      /* cuMemMap of a physical allocation */
	TT_REGION_GLOBAL = 5,   /* a module's __device__ or __constant__ variable */
	TT_REGION_IPC = 6,      /* another process's allocation, opened in this process */
	TT_REGION_ARENA = 7,    /* from the recorder's fixed address range */
	TT_REGION_ZONE = 8,     /* a pattern around allocations of that range, or in place of a freed one; unstable: the tail of another */
	TT_REGION_HOST = 16,    /* this and the next kind are captured only with TT_HOST_MEMORY */
	TT_REGION_HOST_REGISTERED = 17,
	TT_REGION_ARRAY = 18    /* captured only with TT_ARRAYS: then base and size are those of a linear copy */
};

/* tt_region.flags */
#define TT_REGIONF_CAPTURED 1 /* epochs contain its contents */
#define TT_REGIONF_UNSTABLE 2 /* deterministic run, but the driver chose the address */
#define TT_REGIONF_GUARDED 4  /* unmapped addresses follow it */

struct tt_region {
	uint32_t op;        /* enum tt_region_op */
	uint32_t id;        /* from 0 in order of allocation; never reused */
	uint64_t base;      /* device address; of arrays their handle */
	uint64_t size;
	uint32_t kind;      /* enum tt_region_kind */
	uint32_t flags;     /* TT_REGIONF_… */
	uint32_t device;    /* ordinal */
	uint32_t context;
	uint64_t stream;    /* stream id of a stream-ordered allocation or free, else 0 */
	uint64_t seq;       /* tt_event.seq of the call */
	uint64_t time_ns;   /* CLOCK_MONOTONIC */
	uint32_t epoch;     /* number of the next epoch: the first that may contain a new region, or that cannot contain a freed one */
	uint32_t label;     /* string offset: name of a variable, or label; else TT_NO_ID */
	uint32_t call;      /* driver call, as in tt_event.call */
	uint32_t module;    /* tt_module.id of TT_REGION_GLOBAL, else TT_NO_ID */
	uint8_t reserved[8];
	uint64_t check;     /* XXH3-64 of the preceding 88 bytes */
};

/*
 * A name for part of a region from an epoch on. Parts that it overlaps lose their names. All parts end
 * with the region.
 */
struct tt_label {
	uint32_t region;
	uint32_t label;  /* string offset; TT_NO_ID: the part has no name from here on */
	uint64_t offset; /* offset of the part in the region */
	uint64_t size;
	uint64_t start;  /* offset of the part in the named object; 0 unless the object begins in another region */
	uint64_t seq;    /* its position in the order of calls, comparable with tt_event.seq */
	uint32_t epoch;  /* number of the next epoch: the first to which the name applies */
	uint32_t type;   /* string offset: type of its items, such as "f32"; else TT_NO_ID */
	uint64_t check;  /* XXH3-64 of the preceding 48 bytes */
};

/* ---- epochs ---- */

/* tt_epoch.trigger */
enum tt_trigger {
	TT_TRIGGER_SYNC = 1,
	TT_TRIGGER_LAUNCH = 2,
	TT_TRIGGER_KERNEL_BEFORE = 3,
	TT_TRIGGER_KERNEL_AFTER = 4,
	TT_TRIGGER_COPY = 5,
	TT_TRIGGER_API = 6,
	TT_TRIGGER_FINAL = 7, /* before the end of the context or the process */
	TT_TRIGGER_GRAPH = 8,
	TT_TRIGGER_NVTX = 9, /* NVTX mark, or end of an NVTX range */
	TT_TRIGGER_GRAPH_NODE = 10 /* after a kernel inside a graph */
};

/* tt_epoch.flags */
#define TT_EPOCHF_FULL 1      /* every captured region was read, and every block is listed */
#define TT_EPOCHF_TOUCHED 2   /* only some regions were read: those with a digest */
#define TT_EPOCHF_LOOSE 4     /* the cut may be inexact: contents may mix two moments */
#define TT_EPOCHF_REFUSED 8   /* not captured (ring full under "fail", stalled, error); its changes appear in the next epoch */
#define TT_EPOCHF_DROPPED 16  /* captured, but contents were not stored: digests only; or nothing, if overwritten in the ring */
#define TT_EPOCHF_GAP 32      /* may include changes of earlier refused epochs */

struct tt_epoch {
	uint32_t number;        /* from 0, consecutive in the file */
	uint32_t trigger;       /* enum tt_trigger */
	uint32_t flags;         /* TT_EPOCHF_… */
	uint32_t context;
	uint64_t seq;           /* tt_event.seq of the call that triggered it */
	uint64_t time_ns;       /* CLOCK_MONOTONIC of the cut */
	uint64_t done_ns;       /* CLOCK_MONOTONIC of the commit */
	uint32_t label;         /* string offset: kernel name, message or tt_epoch label; else TT_NO_ID */
	uint32_t segment;       /* its blocks are in the TT_DATA_LANES data files from number NNNNN on */
	uint64_t digests_first; /* index of its first record in digests.bin */
	uint64_t digests_count;
	uint64_t blocks_first;  /* index of its first record in blocks.bin */
	uint64_t blocks_count;
	uint64_t bytes_read;    /* bytes of regions hashed on the device */
	uint64_t bytes_changed; /* bytes of the changed blocks */
	uint64_t bytes_stored;  /* bytes appended to the data files */
	uint64_t digests_check; /* XXH3-64 of its records in digests.bin */
	uint64_t blocks_check;  /* XXH3-64 of its records in blocks.bin */
	uint32_t regions;       /* captured regions that exist at the cut; of graph-node epochs, regions read */
	uint32_t device;
	uint64_t captured_ns;   /* CLOCK_MONOTONIC when the drain saw that the device had read memory; 0: unknown */
	uint32_t controls;      /* string offset: settings of tt_control, such as "points=on;stamps=on;snapshot=64;regions=all"; 0: none */
	uint8_t skipped;        /* 1: refused to keep to --max-overhead */
	uint8_t reserved[3];
	uint64_t cut;           /* tt_event.seq of the last call whose work it may contain; 0: unknown, but at most seq */
	uint64_t check;         /* XXH3-64 of the preceding 152 bytes */
};

/* A region digest: XXH3-64, seed 0, of the region's block digests (u64 little-endian, in order). */
struct tt_digest {
	uint32_t region;
	uint32_t changed; /* blocks that changed in this epoch */
	uint64_t digest;
};

/* A segment has this many data files, written in parallel. All but the first exist only once used. */
#define TT_DATA_LANES 4

/* Contents of a block in an epoch: length bytes at offset in data-<segment>.bin. */
struct tt_block {
	uint32_t region;
	uint32_t block;    /* index in the region, in units of TT_BLOCK_SIZE */
	uint64_t digest;   /* XXH3-64, seed 0, of the contents */
	uint64_t offset;   /* from the beginning of the data file */
	uint32_t length;   /* TT_BLOCK_SIZE, or less for a region's last block */
	uint32_t segment; /* NNNNN of the data file */
};

/* ---- kernels and modules ---- */

struct tt_function {
	uint32_t id;         /* from 0 in order of first launch */
	uint32_t name;       /* string offset, mangled */
	uint32_t module;     /* tt_module.id, else TT_NO_ID */
	uint32_t registers;
	uint32_t shared;     /* static shared memory */
	uint32_t local;      /* per thread */
	uint32_t max_threads;
	uint32_t param_bytes;
	uint32_t param_count;
	uint32_t reserved0;
	uint16_t cluster[3]; /* blocks of a cluster that its code demands; 0: none */
	uint8_t reserved[10];
	uint64_t check;      /* XXH3-64 of the preceding 56 bytes */
};

/* tt_frame.kind */
enum tt_frame_kind {
	TT_FRAME_PYTHON = 1,
	TT_FRAME_NATIVE = 2 /* native code: the file has its function and line */
};

/* tt_frame.flags */
#define TT_FRAMEF_TORCH 1 /* from PyTorch's CapturedTraceback */

struct tt_frame {
	uint32_t stack;     /* from 1 in order of first use; equal stacks have one number */
	uint32_t depth;     /* 0: the innermost frame, which made the call */
	uint32_t count;     /* number of frames of this stack */
	uint32_t kind;      /* enum tt_frame_kind */
	uint32_t function;  /* string offset */
	uint32_t file;      /* string offset */
	uint32_t line;      /* line; 0: unknown */
	uint32_t flags;     /* TT_FRAMEF_… */
	uint64_t address;   /* of a native frame, offset of the call in the file, or its address if there is no file */
	uint64_t check;     /* XXH3-64 of the preceding 40 bytes */
};

/* ---- graphs ---- */

/* tt_graph_record.op */
enum tt_graph_op {
	TT_GRAPH_MADE = 1,   /* an executable graph was created: its nodes follow, by number */
	TT_GRAPH_REMADE = 2, /* the executable graph has other nodes from here on: as above */
	TT_GRAPH_NODE = 3,   /* one node changed from here on */
	TT_GRAPH_ENDED = 4   /* destroyed */
};

/* tt_graph_record.kind */
enum tt_node_kind {
	TT_NODE_NONE = 0,     /* of records that describe no node */
	TT_NODE_KERNEL = 1,   /* function, grid, block, cluster, shared; data = parameters in the layout that the kernel sees */
	TT_NODE_COPY = 2,     /* dst, src, bytes, reach */
	TT_NODE_SET = 3,      /* dst, bytes, reach, src = value, shared = bytes of an item */
	TT_NODE_HOST = 4,     /* src = function, dst = its argument */
	TT_NODE_GRAPH = 5,    /* a child graph: its nodes follow, with this node as parent */
	TT_NODE_EMPTY = 6,
	TT_NODE_EVENT_WAIT = 7,   /* src = CUevent */
	TT_NODE_EVENT_RECORD = 8, /* src = CUevent */
	TT_NODE_SIGNAL = 9,   /* external semaphores */
	TT_NODE_WAIT = 10,
	TT_NODE_ALLOC = 11,   /* dst, bytes, src = device, TT_NO_ID if none */
	TT_NODE_FREE = 12,    /* dst */
	TT_NODE_MEM_OP = 13,  /* data = the addresses that it writes to, 8 bytes each */
	TT_NODE_CONDITIONAL = 14, /* src = handle, dst = 0 if, 1 while, 2 switch; nodes of its bodies have it as parent */
	TT_NODE_OTHER = 15
};

/* tt_graph_record.flags; flags that tt_event has, too, have the same values */
#define TT_GRAPHF_DISABLED 1    /* the node is disabled */
#define TT_GRAPHF_COOPERATIVE 2
#define TT_GRAPHF_UNREAD 4      /* of a node: the driver does not describe it; of a graph: its nodes are missing */
#define TT_GRAPHF_HOST_DST 8
#define TT_GRAPHF_HOST_SRC 16
#define TT_GRAPHF_CONDITIONAL 32 /* a conditional node around it decides how often it runs */
#define TT_GRAPHF_DEVICE 64     /* of a node: kernels may change it; of a graph: kernels may launch it */

/* State of an executable graph, or of one of its nodes, from a call on. */
struct tt_graph_record {
	uint64_t seq;      /* tt_event.seq of the call */
	uint32_t op;       /* enum tt_graph_op */
	uint32_t graph;    /* number of the graph, from 0 in order of instantiation */
	uint32_t node;     /* number of the node, from 0; nodes of a child graph follow their parent; of a graph: its node count */
	uint32_t kind;     /* enum tt_node_kind */
	uint32_t flags;    /* TT_GRAPHF_… */
	uint32_t parent;   /* the node whose child graph or body contains this one, else TT_NO_ID */
	uint32_t branch;   /* index of the body of a conditional node that contains it */
	uint32_t function; /* tt_function.id, else TT_NO_ID */
	uint32_t context;  /* context of a kernel or of the graph's instantiation, as in tt_event; else TT_NO_ID */
	uint32_t shared;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t cluster[3];
	uint32_t data_size; /* bytes of data in graphdata.bin; of a graph its edges, tt_graph_edge */
	uint64_t dst;
	uint64_t src;
	uint64_t bytes;
	uint64_t reach;      /* bytes from dst to the end of what it writes, with the gaps between rows */
	uint64_t data;       /* offset from the beginning of graphdata.bin; 0: none */
	uint64_t data_check; /* XXH3-64 of the data */
	uint64_t check;      /* XXH3-64 of the preceding 136 bytes */
};

/* An edge of a graph: `to` runs after `from`. */
struct tt_graph_edge {
	uint32_t from, to;  /* nodes */
	uint8_t from_port;  /* as in CUgraphEdgeData */
	uint8_t to_port;
	uint8_t type;
	uint8_t reserved[5];
};

/* tt_module.kind */
enum tt_module_kind { TT_MODULE_UNKNOWN = 0, TT_MODULE_PTX = 1, TT_MODULE_CUBIN = 2, TT_MODULE_FATBIN = 3 };

/* tt_module.missing: why the image was not stored */
enum tt_missing {
	TT_MISSING_NOTHING = 0,    /* it was */
	TT_MISSING_UNSEEN = 1,     /* its loading was not recorded */
	TT_MISSING_UNKNOWN = 2,    /* its format is unknown */
	TT_MISSING_UNREADABLE = 3, /* its file cannot be read */
	TT_MISSING_LARGE = 4,
	TT_MISSING_UNUSED = 5,     /* no kernel of it was launched yet */
	TT_MISSING_GONE = 6        /* it was no longer in memory */
};

/* The last record of an id is valid. */
struct tt_module {
	uint32_t id;       /* from 0 in order of loading */
	uint32_t kind;     /* enum tt_module_kind */
	uint64_t image;    /* XXH3-64 of the image, stored as modules/<16 hex digits>; 0: not stored */
	uint64_t size;
	uint64_t seq;
	uint32_t path;     /* string offset of the file it was loaded from, else TT_NO_ID */
	uint32_t context;
	uint32_t globals;  /* its variables that are regions */
	uint32_t missing;  /* enum tt_missing */
	uint32_t settings; /* position in params.bin of its tt_setting records, in units of 16 bytes; 0: none */
	uint32_t setting_count;
	uint64_t check;    /* XXH3-64 of the preceding 56 bytes */
};

/* ---- launches that can be run again ---- */

/* tt_setting.what */
enum tt_setting_kind {
	TT_SETTING_ATTRIBUTE = 1, /* of the function: number is a CUfunction_attribute */
	TT_SETTING_CACHE = 2,     /* CUfunc_cache: number 0 of the function, 1 of the context */
	TT_SETTING_LIMIT = 3,     /* of the context: number is a CUlimit */
	TT_SETTING_PRIORITY = 4,  /* of the stream */
	TT_SETTING_JIT = 5,       /* of a module's loading: number is a CUjit_option */
	TT_SETTING_LIBRARY = 6    /* number is a CUlibraryOption */
};

/* A setting in force at a launch or a module's loading. */
struct tt_setting {
	uint32_t what;   /* enum tt_setting_kind */
	uint32_t number;
	uint64_t value;  /* of signed values the two's complement */
};

/* A launch attribute as the program gave it: CUlaunchAttribute. */
struct tt_launch_attribute {
	uint32_t id;
	uint32_t reserved;
	uint8_t value[64];
};

/* tt_view.kind */
enum tt_view_kind {
	TT_VIEW_TEXTURE = 1,
	TT_VIEW_SURFACE = 2,
	TT_VIEW_REFERENCE = 3 /* bound to a texture or surface of the module */
};

/* A view of memory through which a launch may read or write. */
struct tt_view {
	uint64_t object;   /* CUtexObject or CUsurfObject; 0: a reference */
	uint64_t address;  /* address of the memory; of arrays their handle */
	uint64_t size;     /* bytes of linear memory, else 0 */
	uint32_t kind;     /* enum tt_view_kind */
	uint32_t param;    /* its offset in the launch's parameters; TT_NO_ID: a reference */
	uint32_t resource; /* CUresourcetype */
	uint32_t reserved;
};

/* A launch with everything that a replay needs. */
struct tt_launch {
	uint64_t seq;      /* tt_event.seq */
	uint32_t before;   /* the epoch with memory before the launch */
	uint32_t after;    /* the epoch with memory after it, else TT_NO_EPOCH */
	uint32_t function; /* tt_function.id */
	uint32_t setting_count;
	uint32_t settings; /* position in params.bin of its tt_setting records, in units of 16 bytes; 0: none */
	uint32_t attributes; /* the same for tt_launch_attribute */
	uint32_t attribute_count;
	uint32_t views;    /* the same for tt_view */
	uint32_t view_count;
	uint32_t reserved0;
	uint8_t reserved[8];
	uint64_t check;    /* XXH3-64 of the preceding 56 bytes */
};

/* ---- traces of instructions ---- */

/* tt_trace_record.tag, bits 0 to 7; tt_traced.kinds has a bit 1 << kind for each kind that was asked for */
enum tt_trace_kind {
	TT_TRACE_OPCODE = 1,    /* no payload */
	TT_TRACE_REGISTERS = 2, /* u32[32] for each general register among the operands, then u32 for each uniform one */
	TT_TRACE_ADDRESSES = 3, /* u64: the address of lane 0, if TT_TRACEF_STRIDED; else u64[32] */
	TT_TRACE_VALUES = 4,    /* addresses, then u32[32] for each word of what is read or written */
	TT_TRACE_TMA = 5,       /* u64 descriptor, u64 barrier, u32[5] coordinates, u32 mask of blocks, or those and u64[16] map */
	TT_TRACE_COUNT = 6,     /* u64 executions by warps, u64 by threads; written when the launch has ended */
	TT_TRACE_END = 7        /* the launch has ended; u64 number of its records, u64 number of lost ones */
};

/* tt_trace_record.tag, bits 8 to 15 */
#define TT_TRACEF_STRIDED 1 /* the address of each lane is base + lane * stride */

/* Sizes of a record in units of 8 bytes are in bits 16 to 31 of the tag. */
#define TT_TRACE_TAG(kind, flags, bytes) ((uint32_t)(kind) | (uint32_t)(flags) << 8 | (uint32_t)((bytes) / 8) << 16)

#define TT_TRACE_MAGIC 0x4b484354 /* "TCHK" */
#define TT_TRACE_CHUNK_MAX 4194304 /* bytes of records in a chunk */

struct tt_trace_chunk {
	uint32_t magic;    /* TT_TRACE_MAGIC */
	uint32_t bytes;    /* of the records behind this header */
	uint64_t records;  /* their number */
	uint64_t check;    /* XXH3-64 of the records */
	uint64_t head_check; /* XXH3-64 of the preceding members */
};

/* One execution of an instruction by a warp; its payload follows. */
struct tt_trace_record {
	uint32_t tag;         /* TT_TRACE_TAG; in the ring 0 until the record is complete */
	uint32_t launch;      /* index of its tt_traced */
	uint32_t instruction; /* offset in the kernel's machine code / 16, or line of the PTX text */
	uint32_t mask;        /* lanes that execute it */
	uint32_t block_x;
	uint16_t block_y;
	uint16_t block_z;
	uint16_t warp;        /* in the block */
	int16_t stride;       /* of TT_TRACEF_STRIDED */
	uint32_t clock;       /* low half of the multiprocessor's clock; 0: unknown */
};

/* tt_traced.refused */
enum tt_trace_refused {
	TT_REFUSED_NONE = 0,        /* it was traced */
	TT_REFUSED_CODE = 1,        /* its code cannot be instrumented: text says why */
	TT_REFUSED_REGISTERS = 2,   /* the block has too many threads for the registers of the traced kernel */
	TT_REFUSED_PARAMETERS = 3,  /* no room for one more parameter */
	TT_REFUSED_MEMORY = 4,      /* no device memory for the ring or the counters */
	TT_REFUSED_CALL = 5,        /* launched in a way that is not traced, such as inside a graph */
	TT_REFUSED_LIMIT = 6        /* as many records as were asked for have been written, or the disk is full */
};

struct tt_traced {
	uint64_t seq;          /* tt_event.seq of the launch; a launch of a graph has a record for each kernel */
	uint32_t function;     /* tt_function.id */
	uint32_t kinds;        /* bits 1 << tt_trace_kind */
	uint32_t refused;      /* enum tt_trace_refused */
	uint32_t text;         /* refused: why, offset in strings.bin; else the graph's node, as in tt_graph_record; or TT_NO_ID */
	uint32_t grid[3];
	uint32_t block[3];
	uint64_t image;        /* XXH3-64 of the machine code that the driver made of PTX, stored as that of a module; 0: none */
	uint64_t check;        /* XXH3-64 of the preceding 56 bytes */
};

/* A tensor map, and the arguments of the call that encoded it: cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col. */
#define TT_TENSOR_IM2COL 1
struct tt_tensor_map {
	uint64_t map[16];      /* its bytes */
	uint64_t address;      /* of the tensor */
	uint64_t sizes[5];     /* elements, innermost dimension first */
	uint64_t strides[4];   /* bytes, of the dimensions from the second one on */
	uint32_t box[5];       /* im2col: channels, pixels, then for each dimension but first and last 16 bits of the lower and of
				* the upper corner */
	uint32_t steps[5];     /* between elements that are copied */
	uint16_t rank;         /* number of dimensions; what arrays have beyond is 0 */
	uint16_t mode;         /* 0: tiled; TT_TENSOR_IM2COL */
	uint32_t data_type;    /* CUtensorMapDataType */
	uint32_t interleave;
	uint32_t swizzle;
	uint32_t l2_promotion;
	uint32_t oob_fill;
	uint64_t check;        /* XXH3-64 of the preceding 272 bytes */
};

/* ---- ring ---- */

#define TT_CHUNK_MAGIC 0x4b4e4843 /* "CHNK" */

/* tt_chunk.kind */
enum tt_chunk_kind { TT_CHUNK_EPOCH = 1, TT_CHUNK_WRAP = 2 };

/*
 * A chunk: this header, count tt_chunk_entry records, then the payload. Positions in the ring are 64-bit
 * and only grow. A chunk never crosses the end of the ring: if it does not fit, a TT_CHUNK_WRAP header
 * fills the rest and the chunk begins at the start of the ring.
 */
struct tt_chunk {
	uint32_t magic;     /* TT_CHUNK_MAGIC */
	uint32_t kind;      /* enum tt_chunk_kind */
	uint32_t epoch;
	uint32_t part;      /* 0, 1, …: chunks of an epoch larger than the ring */
	uint64_t position;  /* position of this header in the ring */
	uint64_t size;      /* bytes of the whole chunk, a multiple of TT_CHUNK_ALIGN */
	uint64_t count;     /* entries */
	uint64_t payload;   /* offset of the payload from this header */
	uint64_t entries_check; /* sum modulo 2^64 of tt_entry_mix over the entries */
	uint64_t check;     /* tt_chunk_mix of the preceding members */
};

struct tt_chunk_entry {
	uint64_t digest;
	uint64_t offset;    /* offset of the contents in the payload */
	uint32_t region;    /* index into the epoch's list of regions */
	uint32_t block;     /* index in the region */
	uint32_t length;
	uint32_t more;      /* TT_ENTRY_…; before its contents are there: the index of its region in the parameters */
};

#define TT_ENTRY_WRITTEN 1 /* the block was written to after the epoch found it changed */

#endif
