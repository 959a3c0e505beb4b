/*
 * Every structure that ttanalyze keeps in a run directory or in the capture ring.
 *
 * This header is the one definition of the format: the recorder compiles it, and the build
 * hands the same text to cffi, from which the Python toolkit derives its numpy dtypes. It
 * therefore holds only plain constants, enumerations, lists of the form `LIST(X)` and structures of
 * fixed-width members without implicit padding. docs/format.md describes the meaning byte by byte.
 *
 * All integers are little-endian. All offsets and sizes are in bytes unless said otherwise.
 */
#ifndef TT_FORMAT_H
#define TT_FORMAT_H

#include <stdint.h>

#define TT_FORMAT_VERSION 1
#define TT_BLOCK_SIZE 65536     /* bytes of a region that one digest covers */
#define TT_CHUNK_ALIGN 32       /* alignment of chunks and block payloads in the ring */
#define TT_FILE_HEADER_SIZE 64
#define TT_NO_ID 0xffffffff     /* "none" in every 32-bit id member */
#define TT_NO_CALL 0xffff       /* the same in tt_event.call */
#define TT_NO_EPOCH 0xffffffff
#define TT_TEXT_HEAD 8          /* bytes before a text in strings.bin: u32 length, u32 check, the low half of XXH3-64 of it */
#define TT_PIECE_HEAD 8         /* bytes before a piece of params.bin: XXH3-64 of it */

/* ---- file header: the first 64 bytes of every binary file ---- */

/* tt_file_header.kind */
enum tt_file_kind {
	TT_FILE_EVENTS = 1,    /* events.bin     tt_event records, slots claimed per thread */
	TT_FILE_REGIONS = 2,   /* regions.bin    tt_region records, births and deaths */
	TT_FILE_EPOCHS = 3,    /* epochs.bin     tt_epoch records; appending one commits the epoch */
	TT_FILE_DIGESTS = 4,   /* digests.bin    tt_digest records, region digests that changed */
	TT_FILE_BLOCKS = 5,    /* blocks.bin     tt_block records, block contents that changed */
	TT_FILE_DATA = 6,      /* data-NNNNN.bin block contents, raw */
	TT_FILE_FUNCTIONS = 7, /* functions.bin  tt_function records, one per kernel seen */
	TT_FILE_MODULES = 8,   /* modules.bin    tt_module records, one per image loaded */
	TT_FILE_STRINGS = 9,   /* strings.bin    texts: a head, then UTF-8 bytes, no terminator */
	TT_FILE_PARAMS = 10,   /* params.bin     parameters of launches, where they were asked for, and more: pieces, each with a head */
	TT_FILE_FRAMES = 11,   /* frames.bin     tt_frame records, the frames of a call stack one after the other */
	TT_FILE_TIMELINE = 12, /* timeline.bin   tt_activity records, when the GPU did what calls asked for */
	TT_FILE_LABELS = 13,   /* labels.bin     tt_label records, names of parts of regions */
	TT_FILE_GRAPHS = 14,   /* graphs.bin     tt_graph_record records, what executable graphs consist of */
	TT_FILE_GRAPH_DATA = 15, /* graphdata.bin  parameters and edges that those records refer to */
	TT_FILE_LAUNCHES = 16  /* launches.bin   tt_launch records, launches that can be run again */
};

/* tt_file_header.encoding: the contents of a block as they are in a data file */
enum tt_encoding {
	TT_ENCODING_PLAIN = 0, /* as they were */
	TT_ENCODING_ZSTD = 1   /* u32 size, then a zstd frame of that size, or, where it is the block's length, plain */
};

struct tt_file_header {
	uint8_t magic[8];     /* "TTRUN" 0x0d 0x0a 0x1a */
	uint32_t version;     /* TT_FORMAT_VERSION */
	uint32_t kind;        /* enum tt_file_kind */
	uint32_t header_size; /* TT_FILE_HEADER_SIZE; records begin here */
	uint32_t record_size; /* of one record; 1 for data and strings */
	uint32_t index;       /* NNNNN of data-NNNNN.bin, else 0 */
	uint32_t encoding;    /* of contents in data files: enum tt_encoding; else 0 */
	uint64_t created_ns;  /* CLOCK_REALTIME; 0 in deterministic runs */
	uint8_t reserved[16];
	uint64_t check;       /* XXH3-64 of the 56 bytes before */
};

/* ---- events ---- */

/* What is true of all events of a kind. A reader that treats several kinds alike asks for one of these. */
enum tt_kind_property {
	TT_KIND_WORK = 1,       /* a stream does it: on the device, or by a function of the host */
	TT_KIND_WRITES = 2,     /* work that may change device memory */
	TT_KIND_STREAM = 4,     /* it goes into a stream: work, and what orders streams */
	TT_KIND_TIMED = 8,      /* work of which tt_activity says when the device did it */
	TT_KIND_WAIT = 16,      /* the host waited */
	TT_KIND_LAUNCH = 32,    /* it runs kernels */
	TT_KIND_MOVE = 64,      /* it writes bytes to dst */
	TT_KIND_BIRTH = 128,    /* it makes regions */
	TT_KIND_REGION = 256,   /* dst, bytes, id = region */
	TT_KIND_MODULE = 512,   /* id = module */
	TT_KIND_GRAPH = 1024,   /* id = graph, as in tt_graph_record */
	TT_KIND_NAMED = 2048,   /* calls are told apart by id: function, module, graph, epoch, text */
	TT_KIND_NVTX = 4096     /* what the program says of itself through NVTX */
};

/*
 * Each kind of event: its name, its number on disk, its properties (0: none of them).
 *
 * Copies have dst, src, bytes moved; of 2-D and 3-D copies grid = bytes of a row, rows, slices,
 * block = pitches of dst and src, cluster = rows from slice to slice of dst and src.
 *
 * Of TT_KIND_NVTX, where a message is called for: id = string offset of the message, dst = string
 * offset of the domain (TT_NO_ID: the default one), shared = colour as ARGB (0: none), bytes =
 * payload, grid[0] = its type (enum tt_payload), grid[1] = category.
 */
#define TT_EVENT_KINDS(X) \
	X(NONE, 0, 0) /* an unused slot; readers skip it */ \
	X(LAUNCH, 1, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM | TT_KIND_TIMED | TT_KIND_LAUNCH | TT_KIND_NAMED) \
	X(LAUNCH_HOST, 2, TT_KIND_WORK | TT_KIND_STREAM) /* a host function or stream callback */ \
	X(GRAPH_LAUNCH, 3, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM | TT_KIND_TIMED | TT_KIND_LAUNCH | \
			   TT_KIND_GRAPH | TT_KIND_NAMED) \
	X(COPY, 4, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM | TT_KIND_TIMED | TT_KIND_MOVE) \
	/* src = value, shared = bytes of an item; of rows grid = items, rows */ \
	X(SET, 5, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM | TT_KIND_TIMED | TT_KIND_MOVE) \
	X(ALLOC, 6, TT_KIND_BIRTH | TT_KIND_REGION) \
	X(FREE, 7, TT_KIND_REGION) \
	X(STREAM_CREATE, 8, 0) /* bytes = its flags, 1: it does not wait for the legacy default stream */ \
	X(STREAM_DESTROY, 9, 0) \
	X(EVENT_RECORD, 10, TT_KIND_STREAM) /* src = CUevent */ \
	X(EVENT_WAIT, 11, TT_KIND_STREAM) /* src = CUevent */ \
	X(SYNC, 12, TT_KIND_WAIT) /* for a context, stream or event */ \
	X(CONTEXT, 13, 0) /* created or destroyed */ \
	X(MODULE_LOAD, 14, TT_KIND_BIRTH | TT_KIND_MODULE | TT_KIND_NAMED) \
	X(MODULE_UNLOAD, 15, TT_KIND_MODULE | TT_KIND_NAMED) \
	X(MEM_OP, 16, TT_KIND_WORK | TT_KIND_WRITES | TT_KIND_STREAM) /* stream write or wait on a value; dst */ \
	X(CAPTURE_BEGIN, 17, 0) /* stream capture */ \
	X(CAPTURE_END, 18, 0) \
	X(EPOCH, 19, TT_KIND_NAMED) /* an epoch was cut here; id = epoch number */ \
	X(MARK, 20, TT_KIND_NVTX) \
	X(RANGE_PUSH, 21, TT_KIND_NVTX) /* a range of this thread and domain, within those that are open */ \
	X(RANGE_POP, 22, TT_KIND_NVTX) /* ends the innermost; id, dst as there */ \
	X(RANGE_START, 23, TT_KIND_NVTX) /* src = the range; ends anywhere */ \
	X(RANGE_END, 24, TT_KIND_NVTX) /* src = the range; id, dst as there where they are known */ \
	X(NAME, 25, TT_KIND_NVTX) /* id = string offset of a name; dst = of what: enum tt_named */ \
	X(GRAPH_INSTANTIATE, 26, TT_KIND_GRAPH | TT_KIND_NAMED) \
	X(GRAPH_UPDATE, 27, TT_KIND_GRAPH | TT_KIND_NAMED) /* bytes = nodes that changed */ \
	X(GRAPH_DESTROY, 28, TT_KIND_GRAPH | TT_KIND_NAMED) \
	X(CONTROL, 29, TT_KIND_NAMED) /* id = string offset of what tt_control has set, as in tt_epoch.controls */ \
	X(QUERY, 30, 0) /* the program asked whether a stream or an event is through, and it was */

#define TT_EVENT_NUMBER(name, number, properties) TT_EVENT_##name = number,
#define TT_EVENT_PROPERTIES(name, number, properties) TT_PROPERTIES_##name = properties,

/* tt_event.kind */
enum tt_event_kind { TT_EVENT_KINDS(TT_EVENT_NUMBER) };

/* By kind: its properties. */
enum tt_event_properties { TT_EVENT_KINDS(TT_EVENT_PROPERTIES) };

/* tt_event.dst of TT_EVENT_NAME */
enum tt_named {
	TT_NAMED_THREAD = 1, /* src = kernel thread id */
	TT_NAMED_STREAM = 2  /* the event's stream */
};

/* tt_event.grid[0] of annotations: how to read bytes; of the 32-bit types its low half */
enum tt_payload {
	TT_PAYLOAD_NONE = 0,
	TT_PAYLOAD_U64 = 1,
	TT_PAYLOAD_I64 = 2,
	TT_PAYLOAD_F64 = 3,
	TT_PAYLOAD_U32 = 4,
	TT_PAYLOAD_I32 = 5,
	TT_PAYLOAD_F32 = 6
};

/* tt_event.flags */
#define TT_EVENTF_CAPTURING 1     /* recorded into a graph, not executed */
#define TT_EVENTF_COOPERATIVE 2
#define TT_EVENTF_SYNC_COPY 4     /* the call returned after the copy */
#define TT_EVENTF_HOST_DST 8
#define TT_EVENTF_HOST_SRC 16
#define TT_EVENTF_PEER 32
#define TT_EVENTF_DESTROY 64      /* of TT_EVENT_CONTEXT */
#define TT_EVENTF_WAITED 128      /* its stream waits first for a capture that reads what it may write */
#define TT_EVENTF_DELAYED 256     /* it was made later, as TT_LAUNCH_DELAY asks for */
#define TT_EVENTF_DELAYED_STREAM 512 /* so was its work: the stream stood still before it */

struct tt_event {
	uint64_t seq;       /* position in the process-wide order of calls, from 1 */
	uint64_t time_ns;   /* CLOCK_MONOTONIC at entry to the call */
	/* These three are written last, at once. */
	uint16_t kind;      /* enum tt_event_kind */
	uint16_t call;      /* index into the "calls" list of process.json: which driver call; else TT_NO_CALL */
	uint32_t check;     /* low half of XXH3-64 of the record with 0 here */
	uint32_t thread;    /* kernel thread id */
	uint32_t result;    /* CUresult that the program was given */
	uint32_t context;   /* index of the context in order of first use */
	uint32_t flags;     /* TT_EVENTF_… */
	uint64_t stream;    /* stream id: 1 legacy default, 2 per-thread default, else in order of creation from 16 */
	uint64_t dst;       /* of launches with TT_EVENTF_WAITED, the region that the capture reads; 0: it may be any */
	uint64_t src;
	uint64_t bytes;
	uint32_t id;        /* function, region, module, epoch or message, by kind; else TT_NO_ID */
	uint32_t shared;    /* dynamic shared memory of a launch; colour of an annotation */
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t cluster[3]; /* 0 where none was asked for */
	uint32_t params;      /* where in params.bin the piece with a launch's parameters is, in 16 bytes; 0 where not recorded */
	uint32_t params_size; /* their bytes, laid out as the kernel sees them */
	uint32_t stack;       /* tt_frame.stack: who made the call; 0 where not recorded */
};

/* tt_activity.flags */
#define TT_ACTIVITYF_COARSE 1 /* times of events around it: it began no earlier and ended no later */
#define TT_ACTIVITYF_OWN 2    /* of the recorder */
#define TT_ACTIVITYF_STAMPED 4 /* times of stamps around a graph's node; node = 1 + its number in tt_graph_record */

/* What came of a call, and when. Records are in no order. */
struct tt_activity {
	uint64_t seq;      /* tt_event.seq of the call that asked for it; 0 where that is not known */
	uint64_t begin_ns; /* CLOCK_MONOTONIC: on the device; of TT_EVENT_SYNC, how long the host waited */
	uint64_t end_ns;
	uint64_t stream;   /* stream id, 0 where it is not known */
	uint64_t bytes;    /* of copies and sets */
	uint64_t node;     /* of what a graph launch did: the driver's number of the node (stamped: see there); else 0 */
	uint32_t kind;     /* enum tt_event_kind: launch, copy, set, graph launch (as a whole), sync */
	uint32_t flags;    /* TT_ACTIVITYF_… */
	uint32_t context;  /* as in tt_event; TT_NO_ID where it is not known */
	uint32_t device;   /* ordinal, TT_NO_ID where it is not known */
	uint32_t name;     /* string offset of a kernel's mangled name, else TT_NO_ID */
	uint32_t reserved;
	uint64_t check;    /* XXH3-64 of the 72 bytes before, written last; 0: an unused slot */
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
	TT_REGION_IPC = 6,      /* another process's allocation, opened here */
	TT_REGION_ARENA = 7,    /* served from the recorder's fixed address range */
	TT_REGION_ZONE = 8,     /* a pattern around allocations there, or in place of one that was freed */
	TT_REGION_HOST = 16,    /* this and above: known, but not captured */
	TT_REGION_HOST_REGISTERED = 17,
	TT_REGION_ARRAY = 18
};

/* tt_region.flags */
#define TT_REGIONF_CAPTURED 1 /* its contents are part of epochs */
#define TT_REGIONF_UNSTABLE 2 /* deterministic run, but the address is the driver's */

struct tt_region {
	uint32_t op;        /* enum tt_region_op */
	uint32_t id;        /* from 0 in order of allocation; never reused */
	uint64_t base;      /* device address (handle for arrays) */
	uint64_t size;
	uint32_t kind;      /* enum tt_region_kind */
	uint32_t flags;     /* TT_REGIONF_… */
	uint32_t device;    /* ordinal */
	uint32_t context;
	uint64_t stream;    /* stream id of a stream-ordered allocation or free, else 0 */
	uint64_t seq;       /* tt_event.seq of the call */
	uint64_t time_ns;   /* CLOCK_MONOTONIC */
	uint32_t epoch;     /* number the next epoch will have: first that may hold a born region, first that can't hold a died one */
	uint32_t label;     /* string offset: variable name or label, else TT_NO_ID */
	uint32_t call;      /* driver call, as in tt_event.call */
	uint32_t module;    /* of TT_REGION_GLOBAL, else TT_NO_ID */
	uint8_t reserved[8];
	uint64_t check;     /* XXH3-64 of the 88 bytes before */
};

/*
 * From an epoch on, a part of a region is called this, and what it overlaps is not called anything
 * else there any more. A region's end ends its parts.
 */
struct tt_label {
	uint32_t region;
	uint32_t label;  /* string offset; TT_NO_ID: from here on the part has no name */
	uint64_t offset; /* of the part in the region */
	uint64_t size;
	uint64_t start;  /* where the part begins in what is called so; 0 unless that began in another region */
	uint64_t seq;    /* its place in the order of calls, among tt_event.seq */
	uint32_t epoch;  /* number of the next epoch then: the first in which it holds */
	uint32_t type;   /* string offset: what its items are, as "f32", else TT_NO_ID */
	uint64_t check;  /* XXH3-64 of the 48 bytes before */
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
	TT_TRIGGER_FINAL = 7, /* the context or the process was about to end */
	TT_TRIGGER_GRAPH = 8,
	TT_TRIGGER_NVTX = 9, /* a mark, or the end of a range */
	TT_TRIGGER_GRAPH_NODE = 10 /* after a kernel inside a graph */
};

/* tt_epoch.flags */
#define TT_EPOCHF_FULL 1      /* every captured region was read and every block is listed */
#define TT_EPOCHF_TOUCHED 2   /* only some regions were read: those that have a digest */
#define TT_EPOCHF_LOOSE 4     /* the cut could not be made exact: contents may be torn */
#define TT_EPOCHF_REFUSED 8   /* not captured (ring full under "fail", stalled, error); changes show in the next epoch */
#define TT_EPOCHF_DROPPED 16  /* captured, but its contents were not stored: digests only, or, overwritten in the ring, nothing */
#define TT_EPOCHF_GAP 32      /* changes of earlier refused epochs may be included */

struct tt_epoch {
	uint32_t number;        /* from 0, consecutive in the file */
	uint32_t trigger;       /* enum tt_trigger */
	uint32_t flags;         /* TT_EPOCHF_… */
	uint32_t context;
	uint64_t seq;           /* tt_event.seq of the call that triggered it */
	uint64_t time_ns;       /* CLOCK_MONOTONIC at the cut */
	uint64_t done_ns;       /* CLOCK_MONOTONIC when it was committed */
	uint32_t label;         /* string offset: kernel name, message or tt_epoch label, else TT_NO_ID */
	uint32_t segment;       /* its blocks are in the TT_DATA_LANES data files from this NNNNN on */
	uint64_t digests_first; /* record index of its span in digests.bin */
	uint64_t digests_count;
	uint64_t blocks_first;  /* record index of its span in blocks.bin */
	uint64_t blocks_count;
	uint64_t bytes_read;    /* region bytes hashed on the device */
	uint64_t bytes_changed; /* bytes of the changed blocks */
	uint64_t bytes_stored;  /* bytes newly appended to the data file */
	uint64_t digests_check; /* XXH3-64 of its digests.bin span */
	uint64_t blocks_check;  /* XXH3-64 of its blocks.bin span */
	uint32_t regions;       /* captured ones that live at the cut; of graph-node epochs, those read */
	uint32_t device;
	uint64_t captured_ns;   /* CLOCK_MONOTONIC when the drain saw that the device had read it; 0 where that is not known */
	uint32_t controls;      /* string offset: what tt_control had set, as "points=on;stamps=on;snapshot=64;regions=all"; 0: nothing */
	uint8_t reserved[4];
	uint64_t cut;           /* tt_event.seq of the last call whose work it may have; 0 where that is not known but by seq */
	uint64_t check;         /* XXH3-64 of the 152 bytes before */
};

/* A region digest: XXH3-64, seed 0, of the region's block digests (u64 little-endian, in order). */
struct tt_digest {
	uint32_t region;
	uint32_t changed; /* blocks that changed in this epoch */
	uint64_t digest;
};

/* A segment is as many data files, written side by side; all but the first exist only where they came to use. */
#define TT_DATA_LANES 4

/* A block's contents as of an epoch: length bytes at offset in data-<segment>.bin. */
struct tt_block {
	uint32_t region;
	uint32_t block;    /* index within the region, in units of TT_BLOCK_SIZE */
	uint64_t digest;   /* XXH3-64, seed 0, of the contents */
	uint64_t offset;   /* in the data file, from its very beginning */
	uint32_t length;   /* TT_BLOCK_SIZE, less in a region's last block */
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
	uint8_t reserved[16];
	uint64_t check;      /* XXH3-64 of the 56 bytes before */
};

/* tt_frame.kind */
enum tt_frame_kind {
	TT_FRAME_PYTHON = 1,
	TT_FRAME_NATIVE = 2 /* its function and line are to be found in the file */
};

struct tt_frame {
	uint32_t stack;     /* from 1 in order of first use; the same frames have the same number */
	uint32_t depth;     /* 0: the innermost, the one that made the call */
	uint32_t count;     /* frames of this stack */
	uint32_t kind;      /* enum tt_frame_kind */
	uint32_t function;  /* string offset */
	uint32_t file;      /* string offset */
	uint32_t line;      /* 0 where it is not known */
	uint32_t reserved;
	uint64_t address;   /* of a native frame, the call's offset in the file, or, without a file, its address */
	uint64_t check;     /* XXH3-64 of the 40 bytes before */
};

/* ---- graphs ---- */

/* tt_graph_record.op */
enum tt_graph_op {
	TT_GRAPH_MADE = 1,   /* an executable graph was made: its nodes follow, by number */
	TT_GRAPH_REMADE = 2, /* it consists of something else from here on: as above */
	TT_GRAPH_NODE = 3,   /* what a node does from here on */
	TT_GRAPH_ENDED = 4   /* destroyed */
};

/* tt_graph_record.kind */
enum tt_node_kind {
	TT_NODE_NONE = 0,     /* of records that are not of a node */
	TT_NODE_KERNEL = 1,   /* function, grid, block, cluster, shared; data = parameters as the kernel sees them */
	TT_NODE_COPY = 2,     /* dst, src, bytes, reach */
	TT_NODE_SET = 3,      /* dst, bytes, reach, src = value, shared = bytes of an item */
	TT_NODE_HOST = 4,     /* src = function, dst = its argument */
	TT_NODE_GRAPH = 5,    /* the nodes after it that name it as parent */
	TT_NODE_EMPTY = 6,
	TT_NODE_EVENT_WAIT = 7,   /* src = CUevent */
	TT_NODE_EVENT_RECORD = 8, /* src = CUevent */
	TT_NODE_SIGNAL = 9,   /* external semaphores */
	TT_NODE_WAIT = 10,
	TT_NODE_ALLOC = 11,   /* dst, bytes */
	TT_NODE_FREE = 12,    /* dst */
	TT_NODE_MEM_OP = 13,  /* data = the addresses that it writes to, 8 bytes each */
	TT_NODE_CONDITIONAL = 14, /* src = handle, dst = 0 if, 1 while, 2 switch; its bodies' nodes name it as parent */
	TT_NODE_OTHER = 15
};

/* tt_graph_record.flags; those of events that nodes have too have the same values */
#define TT_GRAPHF_DISABLED 1    /* the node is switched off */
#define TT_GRAPHF_COOPERATIVE 2
#define TT_GRAPHF_UNREAD 4      /* the driver does not say what it does; of a graph: there are no nodes here */
#define TT_GRAPHF_HOST_DST 8
#define TT_GRAPHF_HOST_SRC 16
#define TT_GRAPHF_CONDITIONAL 32 /* runs as often as a conditional node that it is in says */
#define TT_GRAPHF_DEVICE 64     /* of a node: kernels may change it; of a graph: kernels may launch it */

/* An executable graph, or a node of one, from a call on. */
struct tt_graph_record {
	uint64_t seq;      /* tt_event.seq of the call */
	uint32_t op;       /* enum tt_graph_op */
	uint32_t graph;    /* number, from 0 in order of instantiation */
	uint32_t node;     /* number, from 0: those of a graph inside come right after the node that holds it; else how many */
	uint32_t kind;     /* enum tt_node_kind */
	uint32_t flags;    /* TT_GRAPHF_… */
	uint32_t parent;   /* the node whose graph this one is in, else TT_NO_ID */
	uint32_t branch;   /* which of the bodies of a conditional node it is in */
	uint32_t function; /* tt_function.id, else TT_NO_ID */
	uint32_t context;  /* in which a kernel runs, or the graph was made, as in tt_event; else TT_NO_ID */
	uint32_t shared;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t cluster[3];
	uint32_t data_size; /* bytes of it in graphdata.bin; of a graph its edges, tt_graph_edge */
	uint64_t dst;
	uint64_t src;
	uint64_t bytes;
	uint64_t reach;      /* from dst on, with the gaps between rows */
	uint64_t data;       /* offset in graphdata.bin, from its very beginning; 0 where there is none */
	uint64_t data_check; /* XXH3-64 of it */
	uint64_t check;      /* XXH3-64 of the 136 bytes before */
};

/* Of a graph: `to` comes after `from`. */
struct tt_graph_edge {
	uint32_t from, to;  /* nodes */
	uint8_t from_port;  /* as in CUgraphEdgeData */
	uint8_t to_port;
	uint8_t type;
	uint8_t reserved[5];
};

/* tt_module.kind */
enum tt_module_kind { TT_MODULE_UNKNOWN = 0, TT_MODULE_PTX = 1, TT_MODULE_CUBIN = 2, TT_MODULE_FATBIN = 3 };

/* tt_module.missing: why an image was not kept */
enum tt_missing {
	TT_MISSING_NOTHING = 0,    /* it was */
	TT_MISSING_UNSEEN = 1,     /* its loading was not seen */
	TT_MISSING_UNKNOWN = 2,    /* it is nothing that is known */
	TT_MISSING_UNREADABLE = 3, /* its file can't be read */
	TT_MISSING_LARGE = 4,
	TT_MISSING_UNUSED = 5,     /* nothing was launched from it so far */
	TT_MISSING_GONE = 6        /* it was not in memory any more */
};

/* The last record of an id counts. */
struct tt_module {
	uint32_t id;       /* from 0 in order of loading */
	uint32_t kind;     /* enum tt_module_kind */
	uint64_t image;    /* XXH3-64 of the image: saved as modules/<16 hex digits>, 0 when not saved */
	uint64_t size;
	uint64_t seq;
	uint32_t path;     /* string offset of the file name it was loaded from, else TT_NO_ID */
	uint32_t context;
	uint32_t globals;  /* variables of it that became regions */
	uint32_t missing;  /* enum tt_missing */
	uint32_t settings; /* where in params.bin the piece with its tt_setting records is, in 16 bytes; 0 where there are none */
	uint32_t setting_count;
	uint64_t check;    /* XXH3-64 of the 56 bytes before */
};

/* ---- launches that can be run again ---- */

/* tt_setting.what */
enum tt_setting_kind {
	TT_SETTING_ATTRIBUTE = 1, /* of the function: number is a CUfunction_attribute */
	TT_SETTING_CACHE = 2,     /* CUfunc_cache: number 0 the function's, 1 the context's */
	TT_SETTING_LIMIT = 3,     /* of the context: number is a CUlimit */
	TT_SETTING_PRIORITY = 4,  /* of the stream */
	TT_SETTING_JIT = 5,       /* of a module's loading: number is a CUjit_option */
	TT_SETTING_LIBRARY = 6    /* number is a CUlibraryOption */
};

/* What was in force. */
struct tt_setting {
	uint32_t what;   /* enum tt_setting_kind */
	uint32_t number;
	uint64_t value;  /* of signed ones the two's complement */
};

/* As the program gave it: CUlaunchAttribute. */
struct tt_launch_attribute {
	uint32_t id;
	uint32_t reserved;
	uint8_t value[64];
};

/* tt_view.kind */
enum tt_view_kind {
	TT_VIEW_TEXTURE = 1,
	TT_VIEW_SURFACE = 2,
	TT_VIEW_REFERENCE = 3 /* to a texture or surface, of the module */
};

/* A view of memory that a launch may read or write through. */
struct tt_view {
	uint64_t object;   /* CUtexObject or CUsurfObject; 0 of a reference */
	uint64_t address;  /* of the memory; of arrays their handle */
	uint64_t size;     /* of linear memory, else 0 */
	uint32_t kind;     /* enum tt_view_kind */
	uint32_t param;    /* where in the launch's parameters it is, in bytes; TT_NO_ID of a reference */
	uint32_t resource; /* CUresourcetype */
	uint32_t reserved;
};

/* A launch with what it needs to run again. */
struct tt_launch {
	uint64_t seq;      /* tt_event.seq */
	uint32_t before;   /* the epoch that has memory as the launch found it */
	uint32_t after;    /* and as it left it, else TT_NO_EPOCH */
	uint32_t function; /* tt_function.id */
	uint32_t setting_count;
	uint32_t settings; /* where in params.bin the piece with its tt_setting records is, in 16 bytes; 0 where there are none */
	uint32_t attributes; /* tt_launch_attribute likewise */
	uint32_t attribute_count;
	uint32_t views;    /* tt_view likewise */
	uint32_t view_count;
	uint32_t reserved0;
	uint8_t reserved[8];
	uint64_t check;    /* XXH3-64 of the 56 bytes before */
};

/* ---- ring ---- */

#define TT_CHUNK_MAGIC 0x4b4e4843 /* "CHNK" */

/* tt_chunk.kind */
enum tt_chunk_kind { TT_CHUNK_EPOCH = 1, TT_CHUNK_WRAP = 2 };

/*
 * A chunk: this header, count tt_chunk_entry records, then the payload. The ring's positions
 * are 64-bit and only grow; a chunk never crosses the ring's end: where it does not fit, a
 * TT_CHUNK_WRAP header fills the rest and the chunk starts at the ring's beginning.
 */
struct tt_chunk {
	uint32_t magic;     /* TT_CHUNK_MAGIC */
	uint32_t kind;      /* enum tt_chunk_kind */
	uint32_t epoch;
	uint32_t part;      /* 0, 1, … of an epoch larger than the ring */
	uint64_t position;  /* ring position of this header */
	uint64_t size;      /* of the whole chunk, a multiple of TT_CHUNK_ALIGN */
	uint64_t count;     /* entries */
	uint64_t payload;   /* offset of the payload from the header */
	uint64_t entries_check; /* sum modulo 2^64 of tt_entry_mix over the entries */
	uint64_t check;     /* tt_chunk_mix of the members before */
};

struct tt_chunk_entry {
	uint64_t digest;
	uint64_t offset;    /* of the contents from the start of the payload */
	uint32_t region;    /* index into the epoch's region list */
	uint32_t block;     /* index within the region */
	uint32_t length;
	uint32_t more;      /* TT_ENTRY_…; while it waits for its contents: its region's index in the parameters */
};

#define TT_ENTRY_WRITTEN 1 /* the block was written to after the epoch found that it had changed */

#endif
