/*
 * Objects of the simulated driver, and the functions that its files share.
 *
 * Invariants: one lock guards every object. It is held from sim_enter to sim_leave, and functions below
 * expect it unless stated otherwise. Work runs without the lock, one item at a time, in the thread that
 * holds the engine (sched.c). So memory that an item uses may be unmapped only after engine_quiesce. User
 * code (host functions) runs without the lock and in another thread than the caller's.
 */
#ifndef TT_SIM_DRIVER_DRIVER_H
#define TT_SIM_DRIVER_DRIVER_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(protected)
#include <cuda.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "sim/ptx/ptx.h"

#define SIM_MAX_DEVICES 16
#define SIM_ALIGNMENT 512          /* of each device allocation */
#define SIM_GRANULARITY (2u << 20) /* of physical memory and of the ranges it is mapped to */
#define SIM_DRIVER_VERSION 13000
#define SIM_STREAM_ATTRIBUTES 16

#define ROUND_UP(value, unit) (((value) + (unit) - 1) / (unit) * (unit))

/* ---- settings.c: TT_SIM_… ---- */

struct sim_settings {
	unsigned devices;
	uint64_t memory; /* bytes of each device */
	uint64_t seed;
	bool seeded;       /* a seed was given: addresses are the same in each run */
	bool random_order; /* for work that no event or stream orders */
	bool lenient_bounds; /* kernels may use the whole page of an allocation, as on a GPU */
	int driver_version;
	unsigned long fail_allocation; /* 1-based number of the call that fails; 0: none */
	unsigned long fail_launch;
	unsigned long slow_copy_us;
	uint64_t pinned; /* larger host allocations fail; 0: none */
	bool keeps;      /* memory of unloaded modules is reused by later ones */
	bool lazy;       /* the first launch of a kernel that is not loaded waits for its context */
	bool elsewhere;  /* address ranges ignore the requested address */
	uint64_t granularity; /* of physical memory, bytes */
	bool ipc;        /* devices say that they can share memory by handles */
	bool apart;      /* no device can access another's memory */
	bool one_queue;  /* work of streams with a priority runs in the order of submission, as in one hardware queue */
	bool deadlocks;  /* a kernel whose threads wait for each other never ends, as on a GPU */
	bool blocking;   /* a launch returns when it is complete: CUDA_LAUNCH_BLOCKING, as on a GPU */
	char *refused_name; /* modules that contain this text do not load */
};
extern struct sim_settings sim_settings;

bool settings_load(void); /* Runs once. False: a variable is invalid, and a message said so. */

static inline uint64_t sim_mix(uint64_t value)
{
	value += 0x9e3779b97f4a7c15;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
	value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
	return value ^ (value >> 31);
}

/* ---- state.c: life of the driver, the lock, the handles ---- */

enum handle_kind {
	HANDLE_CONTEXT = 1,
	HANDLE_STREAM,
	HANDLE_EVENT,
	HANDLE_MODULE,
	HANDLE_FUNCTION,
	HANDLE_LIBRARY,
	HANDLE_KERNEL,
	HANDLE_GRAPH,
	HANDLE_NODE,
	HANDLE_EXEC,
	HANDLE_POOL,
	HANDLE_ARRAY,
	HANDLE_MIPMAP,
	HANDLE_PHYSICAL,
	HANDLE_USER_OBJECT
};

struct sim_thread {
	uint64_t number; /* from 1, never reused */
	CUcontext stack[64];
	unsigned depth;
	CUstreamCaptureMode capture_mode;
	bool in_host_function;
};

/* Takes the lock. On anything but success it is not held. */
CUresult sim_enter(CUcontext *ctx); /* needs a valid current context without error */
CUresult sim_enter_driver(void);    /* needs only cuInit */
CUresult sim_leave(CUresult result); /* releases the lock and returns result */
/* For the begin of a call: both end it, before and after the lock is taken. */
#define ENTER(call) \
	do { \
		CUresult refused_ = (call); \
		if (refused_) \
			return refused_; \
	} while (0)
#define INVALID_IF(condition) \
	do { \
		if (condition) \
			return sim_leave(CUDA_ERROR_INVALID_VALUE); \
	} while (0)
extern pthread_mutex_t sim_mutex; /* the lock itself: for waits */
CUresult sim_life(void);                     /* 3 before cuInit and in a forked child, 4 at exit */
struct sim_thread *sim_thread(void);
void sim_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
CUresult sim_unsupported(const char *call); /* reports it on stderr */
CUresult sim_refuse(const char *call);      /* the same, for a call without other effect */
bool sim_allocation_fails(void);            /* counts an allocation call for TT_SIM_FAULT=oom:N */
void *sim_alloc(size_t size);               /* zeroed; never NULL */
void *sim_copy(const void *from, size_t size);

void handle_add(const void *object, enum handle_kind kind);
void handle_remove(const void *object);
bool handle_is(const void *object, enum handle_kind kind);

/* ---- device.c ---- */

struct sim_device {
	CUcontext primary;      /* made on first use and then kept, so that its handle does not change */
	unsigned primary_flags;
	uint64_t used;          /* bytes allocated */
	uint64_t kept;          /* of these, bytes of unloaded modules, until an allocation needs them */
	CUmemoryPool default_pool, pool;
	unsigned graph_memory_reserved;
};
extern struct sim_device sim_devices[SIM_MAX_DEVICES];

bool device_valid(CUdevice device);
bool device_charge(int device, uint64_t bytes); /* false if less memory is free */
void device_refund(int device, uint64_t bytes);
int device_attribute(CUdevice_attribute attribute, int device);

/* ---- context.c ---- */

TAILQ_HEAD(op_list, sim_op);
LIST_HEAD(stream_list, CUstream_st);
LIST_HEAD(event_list, CUevent_st);
LIST_HEAD(module_list, CUmod_st);
LIST_HEAD(array_list, CUarray_st);
LIST_HEAD(mipmap_list, CUmipmappedArray_st);

struct CUctx_st {
	int device;
	unsigned flags, version;
	bool primary, alive;
	unsigned retained;       /* reference count of a primary context */
	unsigned long long id;
	CUresult fault;          /* the error that every call returns after a kernel failed */
	CUstream legacy;
	struct stream_list streams; /* all streams, default ones included */
	struct event_list events;
	struct module_list modules;
	struct array_list arrays;
	struct mipmap_list mipmaps;
	struct op_list pending;  /* unfinished work, in order of submission */
	unsigned pending_count;
	struct sim_op *queued;   /* last work of streams with a priority, with one queue for them */
	uint64_t peers;          /* bit per device whose memory is open to kernels */
	size_t limits[CU_LIMIT_MAX];
	CUfunc_cache cache;
	CUsharedconfig shared_config;
	CUgreenCtx green;
	CUcontext older; /* every context that was ever created: none is freed, so that stale handles are recognised */
};

CUcontext context_make(int device, unsigned flags);
void context_start(CUcontext ctx, unsigned flags); /* usable again after context_end */
void context_settle(CUcontext ctx); /* waits until all its work is complete and nothing runs */
void context_end(CUcontext ctx); /* destroys everything in it; no work may be pending */
CUcontext context_current(void);
CUcontext context_newest(void); /* head of the list of all contexts, linked by older */
bool context_alive(CUcontext ctx); /* any pointer */
void context_fault(CUcontext ctx, CUresult fault);
void context_wait(CUcontext ctx); /* waits until all work submitted so far is complete */
void contexts_wait(void); /* the same for all contexts, until nothing runs */
uint64_t context_reach(CUcontext ctx); /* bit per device whose memory its kernels may access */

/* ---- context_settings.c ---- */

void context_default_settings(CUcontext ctx);
bool context_flags_good(unsigned flags);

/* ---- region.c: which addresses hold what ---- */

enum region_kind { REGION_DEVICE, REGION_POOL, REGION_VMM, REGION_GLOBAL, REGION_MANAGED, REGION_HOST, REGION_REGISTERED };

struct region {
	uint64_t base;
	size_t size;
	unsigned char *memory;  /* the simulator's own address of the memory */
	enum region_kind kind;
	int device;             /* -1: host memory */
	CUcontext ctx;          /* the context that owns it, or NULL */
	uint64_t readers, writers; /* bit per device */
	unsigned flags;         /* as given by the caller */
	bool read_only;         /* to kernels: __constant__ */
	bool sync_memops;
	unsigned long long id;
	size_t charged;         /* bytes charged to the device */
	bool dying;             /* its free was submitted */
	/* REGION_POOL */
	CUmemoryPool pool;
	bool of_graph;
	bool dead;              /* to be deleted once nothing runs */
	CUstream freed_on;
	/* REGION_VMM */
	struct physical *physical;
};

bool region_setup(void); /* Reserves address ranges of the process. False: it has no room. */
struct region *region_find(uint64_t address);
struct region *region_from(uint64_t address); /* the first region that ends after the address */
/* Host pointer to the whole span if one allocation (or adjacent mappings) contains it, else NULL. */
unsigned char *region_span(uint64_t address, size_t size, struct region **first);
struct region *region_next(const struct region *r);
struct region *region_of(uint64_t base, enum region_kind kind, CUcontext ctx);
/* The same without the lock, for running work. NULL: part of the span may not be accessed. */
struct region_access {
	int device;     /* -1: any device with access */
	uint64_t reach; /* bit per device whose ordinary memory is accessible */
	bool write, kernel, recorder; /* a kernel of the recorder */
};
void *region_resolve(uint64_t address, size_t size, const struct region_access *access);
/* "byte 4 of an allocation of 100 bytes", without the lock: the same in each run of a program */
void region_describe(uint64_t address, char *text, size_t size);
bool region_usable(const struct region *r); /* usable by new work: not about to be freed */
unsigned access_flags(const struct region *r, CUcontext ctx); /* CU_MEM_ACCESS_FLAGS_… that a context has */
bool region_overlaps(uint64_t address, size_t size);
void region_renew(struct region *r); /* the same memory, as a new allocation */
void region_allow(struct region *r, uint64_t readers, uint64_t writers);
struct region *region_at(uint64_t base, size_t size, enum region_kind kind, int device, unsigned char *memory, CUcontext ctx);
void region_remove(struct region *r); /* removes the region and keeps the memory */
CUresult region_new(int device, CUcontext ctx, size_t size, size_t align, enum region_kind kind,
		    struct region **out); /* device memory, charged to the device */
void region_delete(struct region *r); /* unmaps and removes device memory, and returns it to the device */

/* ---- storage.c: the bytes behind regions ---- */

unsigned char *storage_new(size_t size); /* filled with garbage; NULL: out of memory */
void storage_delete(unsigned char *memory, size_t size);
void storage_garbage(unsigned char *memory, size_t size);
#define STORAGE_FILE_NAME "ttanalyze simulator memory"
/* Garbage that can be mapped again; with a file, also by other processes through its descriptor. */
unsigned char *storage_shared(size_t size, int *file);

struct sim_work;

/* ---- vmm.c ---- */

struct physical {
	unsigned handles, mappings; /* number of its users */
	unsigned char *memory; /* a shared mapping; all others are second views of it */
	int file; /* -1: cannot be exported */
	size_t size;
	CUmemAllocationProp properties;
	int device; /* -1: host */
	size_t charged;
};

/* ---- pool.c ---- */

struct CUmemPoolHandle_st {
	int device;
	bool is_default;
	CUmemPoolProps properties;
	uint64_t reserved, reserved_high, used, used_high, threshold;
	int reuse_event, reuse_opportunistic, reuse_internal;
	uint64_t readers; /* bit per device that may access its memory */
	unsigned live;    /* its regions */
	bool destroyed;
};

CUmemoryPool pool_default(int device);
/* The stream (or NULL) may reuse memory that it is about to free. */
CUresult pool_take(CUmemoryPool pool, CUstream stream, size_t size, struct region **out);
CUresult pool_free(struct region *r); /* frees at once when the work submitted so far is complete */
/* From now on it exists from a launch of this allocation node to the next free. */
void pool_keep_for_graph(struct region *r, struct sim_work *work);
void pool_bury(void); /* deletes freed regions; only while nothing runs */
void pool_graph_launched(const struct sim_work *work); /* a graph with this node was launched */
bool pool_graph_memory_live(const struct sim_work *work);
void pool_alloc_run(const struct sim_work *work);
void pool_forget_node(const struct sim_work *work); /* no graph has this allocation node any more */
void pool_free_run(const struct sim_work *work); /* a submitted free is executed */

/* ---- work.c: one item of work, and how it runs ---- */

enum work_type {
	WORK_NOTHING,
	WORK_KERNEL,
	WORK_COPY,
	WORK_FILL,
	WORK_HOST,
	WORK_CALLBACK,
	WORK_RECORD,
	WORK_WAIT_EVENT,
	WORK_POOL_ALLOC,
	WORK_POOL_FREE,
	WORK_MEMOPS,
	WORK_CONDITION
};

struct copy_end {
	CUmemorytype type; /* HOST, DEVICE or ARRAY */
	unsigned char *host;
	CUdeviceptr device;
	CUarray array;
	size_t x, y, z;
	size_t pitch, height;
};

struct copy {
	struct copy_end src, dst;
	size_t width, height, depth;
	bool peers; /* between contexts: no device needs access to the other's memory */
};

struct sim_work {
	unsigned refs;
	enum work_type type;
	CUcontext ctx;
	union {
		struct {
			CUfunction function;
			CUkernel kernel; /* the function as it was launched, or NULL */
			unsigned grid[3], block[3], cluster[3];
			unsigned shared;
			bool cooperative;
			unsigned char *params;
			void **pointers; /* pointers to the parameters */
			struct tt_sim_trace *trace; /* of this one launch; NULL: it is not traced */
		} kernel;
		struct {
			struct copy copy;
			unsigned char *staged; /* contents of a pageable source at the call */
		} copy;
		struct {
			CUdeviceptr dst;
			size_t pitch, width, height;
			unsigned value, element; /* width counts elements of this many bytes */
		} fill;
		struct {
			CUhostFn function;
			void *data;
		} host;
		struct {
			CUstreamCallback function;
			CUstream stream;
			void *data;
		} callback;
		CUevent event;
		struct {
			CUdeviceptr address;
			size_t size;
			unsigned long long region; /* id of the region that is freed */
			CUmemAccessDesc *access; /* parameters as the node got them */
			size_t access_count;
			CUmemPoolProps properties;
		} pool;
		struct {
			unsigned count;
			CUstreamBatchMemOpParams *ops;
		} memops;
		struct {
			CUgraphExec root; /* of the launch */
			const struct exec_node *node; /* nested work runs between this and end; NULL: the launch begins */
			struct sim_op *end;
		} condition;
	};
};

struct sim_work *work_new(enum work_type type, CUcontext ctx);
struct sim_work *work_ref(struct sim_work *w);
/* A kernel's work for one launch that is traced; takes `trace`. */
struct sim_work *work_traced(const struct sim_work *w, struct tt_sim_trace *trace);
void work_unref(struct sim_work *w);

/* Order of a kernel's blocks and warps (0: sequential), and which blocks run now (count 0: all). */
struct work_part {
	uint64_t schedule_seed, first, count;
};

CUresult work_run(struct sim_work *w, const struct work_part *part, char *why, size_t size); /* no lock */

/* ---- trace.c: for who follows the work ---- */

struct sim_op;
uint64_t trace_now(void);
uint32_t trace_submitted(void);
void trace_ran(const struct sim_op *op, uint64_t begin);

/* ---- sched.c: the order in which work runs ---- */

struct sim_op {
	unsigned refs;
	uint64_t seq; /* order of submission */
	struct sim_work *work;
	CUcontext ctx;
	bool done;
	unsigned blockers; /* unfinished operations that precede it */
	struct sim_op **dependents;
	unsigned dependent_count, dependent_room;
	unsigned step; /* next part of WORK_MEMOPS */
	uint64_t blocks; /* blocks of WORK_KERNEL that have run */
	uint64_t begin_ns; /* when the first of them ran; 0: none yet */
	bool fails; /* TT_SIM_FAULT=launch:N selected it */
	uint64_t finished_ns;
	uint32_t correlation; /* trace.c */
	uint64_t node; /* number of the executable graph and of the node, else 0 */
	TAILQ_ENTRY(sim_op) pending, ready;
};

struct sim_op *op_new(CUcontext ctx, struct sim_work *work); /* takes over the reference to work */
void op_after(struct sim_op *op, struct sim_op *earlier); /* earlier may be NULL */
void op_submit(struct sim_op *op);
struct sim_op *op_ref(struct sim_op *op);
void op_unref(struct sim_op *op); /* NULL is fine */
void op_wait(struct sim_op *op); /* Runs the engine. The lock is released meanwhile. */
bool op_step(void); /* runs one item if any can run */
void op_look(struct sim_op *op); /* has another thread run one item because a call asks whether op is complete */
void engine_quiesce(void); /* waits until nothing runs */
/* Called by a running kernel, without the lock: copies may run; wait: for some time. */
void engine_pause(bool wait);
void engine_call_host(struct sim_work *work); /* WORK_HOST, at once, on the thread of host functions */
void engine_relieve(void); /* runs work if the queue is too long */
void engine_wait(bool (*finished)(void *), void *argument);

/* ---- stream.c ---- */

struct edge {
	CUgraphNode node;
	CUgraphEdgeData data;
};

struct edges {
	struct edge *items;
	size_t count;
};

struct CUstream_st {
	CUcontext ctx;
	unsigned flags;
	int priority;
	unsigned long long id;
	bool legacy;
	bool destroyed; /* kept until its work is complete: the legacy stream waits for that */
	uint64_t thread; /* the thread whose default stream it is, or 0 */
	struct sim_op *last; /* newest operation, complete or not */
	struct capture *capture;
	struct edges deps; /* dependencies of the next captured node */
	CUgraphNode *info_nodes; /* deps as they were last returned */
	CUgraphEdgeData *info_data;
	CUstreamAttrValue attributes[SIM_STREAM_ATTRIBUTES];
	LIST_ENTRY(CUstream_st) all;
};

CUresult stream_get(CUcontext ctx, CUstream handle, CUstream *out);
CUstream stream_make(CUcontext ctx, unsigned flags, int priority);
void stream_delete(CUstream stream);
/* Puts work (and takes its reference) at the stream's end, or into the graph being captured. */
CUresult stream_submit(CUstream stream, struct sim_work *work, struct sim_op **out);
/* The same, also during a capture, with another dependency (may be NULL). Returns a borrowed reference. */
struct sim_op *stream_push(CUstream stream, struct sim_work *work, struct sim_op *also);
void stream_wait(CUstream stream); /* waits until its present work is complete */
CUresult stream_check_legacy(CUstream stream); /* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (906) if legacy order meets a capture */

/* ---- event.c ---- */

struct CUevent_st {
	unsigned refs;
	CUcontext ctx;
	unsigned flags;
	struct sim_op *op; /* newest record, or NULL */
	unsigned long long capture_id; /* the capture that recorded it last, or 0 */
	struct edges deps;
	LIST_ENTRY(CUevent_st) all;
};

void event_unref(CUevent event);
void event_delete(CUevent event);
void event_recorded(CUevent event, struct sim_op *op); /* op is its newest record */

/* ---- module.c, library.c ---- */

struct CUfunc_st {
	CUmodule module;
	const ptx_function *code;
	const ptx_function_info *info;
	CUkernel kernel; /* the library's kernel, or NULL */
	int dynamic_shared_max, carveout, large_clusters, cluster_policy;
	bool loaded;
};

struct CUmod_st {
	CUcontext ctx;
	ptx_module *code;
	char *text; /* the PTX that it was made of */
	CUlibrary library; /* the library that owns it, or NULL */
	struct CUfunc_st *functions;
	size_t function_count;
	struct region **globals;
	size_t global_count;
	bool starved; /* memory for one of them was not available */
	bool charged; /* the device was charged for its memory */
	LIST_ENTRY(CUmod_st) all;
};

/* On failure log gets the reason in one line. */
CUresult module_load(CUcontext ctx, const char *text, CUmodule *out, char *log, size_t log_size);
void module_delete(CUmodule module);
CUfunction module_function(CUmodule module, const char *name);
void function_load(CUfunction f);
CUresult function_get(CUcontext ctx, CUfunction handle, CUfunction *out); /* or a CUkernel */
CUresult function_attribute(const struct CUfunc_st *f, CUfunction_attribute attribute, int *out);
CUresult function_set_attribute(CUfunction f, CUfunction_attribute attribute, int value);
CUresult function_param(const ptx_function *f, size_t index, size_t *offset, size_t *size);
CUresult kernel_function(CUcontext ctx, CUkernel kernel, CUfunction *out);
void library_forget(CUmodule module);

/* ---- image.c ---- */

/* The PTX text of an image (malloc), else the error that NVIDIA's driver returns for such an image. */
CUresult image_text(const void *image, char **text, char *log, size_t log_size);
CUresult image_read(const char *path, void **image); /* the whole file (malloc), with zeros at its end */
void image_report(const char *log, unsigned count, const CUjit_option *options, void **values);

/* ---- launch.c ---- */

/* ctx: the context to run in. f: as the caller gave it, perhaps a kernel. */
CUresult launch_work(CUcontext ctx, const CUlaunchConfig *config, CUfunction f, void **params, void **extra,
		     struct sim_work **out);
CUresult launch_check_cluster(const struct sim_work *work);
struct tt_sim_trace *launch_trace(const struct tt_sim_trace *trace); /* a copy */

/* ---- copy.c, copy_work.c, fill.c, memop.c ---- */

CUresult copy_check(CUcontext ctx, struct copy *c, bool *pageable_src, bool *pageable_dst);
struct sim_work *copy_work(CUcontext ctx, const struct copy *c); /* of a checked copy */
struct copy copy_from_3d(const CUDA_MEMCPY3D *from);
CUDA_MEMCPY3D copy_to_3d(const struct copy *c);
CUstream own_stream(CUstream handle); /* as the per-thread variants of calls understand it */
unsigned char *copy_stage(CUcontext ctx, const struct copy *c); /* the bytes of its source (malloc) */
CUresult copy_run(CUcontext ctx, const struct copy *c, const unsigned char *staged);
CUresult fill_check(CUcontext ctx, CUdeviceptr dst, size_t pitch, unsigned element, size_t width, size_t height);
CUresult memops_check(CUcontext ctx, unsigned count, const CUstreamBatchMemOpParams *ops);
/* Executes parts from *step on, up to a wait whose value is not there yet. True: all are complete. */
bool memops_advance(struct sim_work *work, unsigned *step, CUresult *result);
bool memops_blocked(const struct sim_work *work, unsigned step);
CUresult fill_run(CUcontext ctx, CUdeviceptr dst, size_t pitch, unsigned element, unsigned value, size_t width, size_t height);

/* ---- array.c ---- */

struct CUarray_st {
	unsigned refs; /* users: the handle and pending copies */
	CUcontext ctx;
	CUDA_ARRAY3D_DESCRIPTOR descriptor;
	size_t element, pitch, rows, layers; /* bytes of an element and a row; rows, layers ≥ 1 */
	size_t size;
	unsigned char *memory;
	bool of_mipmap;
	LIST_ENTRY(CUarray_st) all;
};
void array_delete(CUarray array);
void array_unref(CUarray array); /* NULL is fine */
void mipmap_delete(CUmipmappedArray mipmap);

/* ---- capture.c ---- */

struct capture {
	unsigned long long id;
	CUgraph graph;
	bool own_graph; /* made for it */
	CUstreamCaptureMode mode;
	uint64_t thread;
	CUstream origin;
	bool invalid;
	LIST_ENTRY(capture) all;
};

CUresult capture_forbids(void); /* for calls that may invalidate a capture: returns 900 and invalidates it */
CUresult capture_forbids_context(CUcontext ctx); /* a wait for a context with captures: 900 */
CUresult capture_add(CUstream stream, struct sim_work *work);
CUresult capture_record(CUstream stream, CUevent event);
CUresult capture_wait(CUstream stream, CUevent event);
void capture_invalidate(struct capture *c);
void capture_leave(CUstream stream); /* a stream that is destroyed */
struct capture *capture_blocking(CUcontext ctx); /* a capture that a legacy operation would join */
struct capture *capture_by_id(unsigned long long id);
bool capture_builds(CUgraph graph);

/* ---- graph.c ---- */

struct CUgraphNode_st {
	CUgraph graph;
	CUgraphNodeType type;
	struct sim_work *work; /* NULL: empty or child */
	CUgraph child;
	CUgraph *bodies; /* of a conditional node */
	unsigned body_count;
	struct condition *condition;
	CUgraphConditionalNodeType condition_type;
	struct edges before, after;
	unsigned long long id;
	unsigned number; /* in its graph, in order of creation */
	CUgraphNode origin; /* node it was cloned from */
	size_t mark; /* temporary value of traversals */
	TAILQ_ENTRY(CUgraphNode_st) all, end;
};

struct user_reference {
	CUuserObject object;
	unsigned count;
};

struct CUgraph_st {
	TAILQ_HEAD(node_list, CUgraphNode_st) nodes; /* in order of creation */
	TAILQ_HEAD(, CUgraphNode_st) last; /* nodes without dependents, the newest first */
	size_t count;
	unsigned long long id;
	unsigned made; /* number of nodes, with removed ones */
	CUgraphNode parent; /* child graph node that owns it */
	CUgraph origin; /* graph that it was cloned from */
	struct user_reference *objects;
	size_t object_count;
};

void edges_set(struct edges *e, const struct edge *items, size_t count);
void edges_add(struct edges *e, const struct edge *items, size_t count); /* each node once */
size_t edges_find(const struct edges *e, CUgraphNode node); /* its index; count: none */
void edges_connect(CUgraphNode from, CUgraphNode to, CUgraphEdgeData data);
void edges_disconnect(CUgraphNode from, CUgraphNode to);
CUgraph graph_make(void);
unsigned graph_next_number(void); /* a new number, for a graph or an executable graph */
void graph_delete(CUgraph graph);
/* Takes over work or child on success. */
CUresult graph_add(CUgraph graph, CUgraphNodeType type, struct sim_work *work, CUgraph child, const struct edge *deps,
		   size_t count, CUgraphNode *out);
/* INVALID_VALUE if the graph may not be cloned. */
CUresult graph_copy(CUgraph graph, CUgraph *out);
/* All nodes in topological order (malloc). NULL: there is a cycle. */
CUgraphNode *graph_order(CUgraph graph);
CUresult graph_edges_from(CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
			  struct edge **out); /* malloced */
CUgraphNodeType work_node_type(const struct sim_work *work);
/* conditional.c */
CUresult conditional_check(CUgraph graph, const CUDA_CONDITIONAL_NODE_PARAMS *p);
void conditional_make(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS *p); /* its bodies */
/* Visits all conditions of an executable graph until visit returns true. */
bool conditional_is_any(struct condition *c);
bool conditional_is_taken(struct condition *c); /* Whether an executable graph uses it: at most one may. */
bool conditional_take(struct condition *c);
bool conditional_give_back(struct condition *c);
bool conditional_begin(struct condition *c); /* At a launch: the value becomes the default of its handle. */
/* Index of the body that runs now, or the number of bodies: none. */
unsigned conditional_body(const struct condition *c, CUgraphConditionalNodeType type, unsigned count);
bool conditional_set(uint64_t handle, uint32_t value); /* called by a kernel; takes no lock */

/* ---- user_object.c ---- */

void user_references_keep(struct user_reference *references, size_t count);
void user_references_release(struct user_reference *references, size_t count);

/* ---- exec.c ---- */

struct exec_node {
	CUgraphNode source; /* only compared */
	unsigned number;
	CUgraphNodeType type;
	struct sim_work *work;
	CUgraphExec child;
	CUgraphExec *bodies;
	unsigned body_count;
	struct condition *condition;
	CUgraphConditionalNodeType condition_type;
	unsigned *before; /* indices of its dependencies */
	unsigned before_count;
	bool disabled;
	struct tt_sim_trace *trace; /* of the kernel in the next launch, or NULL */
};

struct CUgraphExec_st {
	unsigned refs; /* references of the program, and of conditions that are still to be evaluated */
	CUcontext ctx;
	unsigned number;
	unsigned long long flags;
	struct exec_node *nodes; /* all nodes in topological order */
	unsigned count;
	unsigned *ends; /* nodes without dependents */
	size_t end_count;
	struct sim_op *last; /* end of the newest launch: launches of one graph do not overlap */
	struct user_reference *objects;
	size_t object_count;
};

CUresult exec_set_work(CUgraphExec exec, CUgraphNode node, struct sim_work *work);
CUresult exec_make(CUcontext ctx, CUgraph graph, unsigned long long flags, CUgraphExec *out, CUgraphNode *failed);
void exec_unref(CUgraphExec exec);
void exec_delete(CUgraphExec exec);
CUresult exec_enter(CUgraphExec exec); /* INVALID_VALUE if it is none; else sim_leave must follow */
void exec_condition(struct sim_op *op); /* of WORK_CONDITION, which is about to complete */

/* Graphs of a node: a child graph, or the bodies of a condition. */
static inline unsigned exec_inside_count(const struct exec_node *n)
{
	return n->child ? 1 : n->body_count;
}

static inline CUgraphExec exec_inside(const struct exec_node *n, unsigned i)
{
	return n->child ? n->child : n->bodies[i];
}

#endif
