/*
 * What the files of the simulated driver share: its objects and the calls between them.
 *
 * Invariants: every object is guarded by one lock, held from sim_enter to sim_leave; a function
 * below expects it held unless it says otherwise. Work runs without it, one item at a time, by
 * whoever holds the engine (sched.c), so that memory an item uses may only be unmapped after
 * engine_quiesce. User code (host functions) runs without the lock and off the caller's thread.
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
	bool seeded;       /* a seed was given: addresses repeat as well */
	bool random_order; /* for work that no event or stream orders */
	bool lenient_bounds; /* kernels may use the whole page of an allocation, as on a GPU */
	int driver_version;
	unsigned long fail_allocation; /* 1-based number of the call that fails, 0 = none */
	unsigned long fail_launch;
	unsigned long slow_copy_us;
	uint64_t pinned; /* larger host allocations fail; 0: none */
	bool keeps;      /* memory of unloaded modules is kept for later ones */
	bool lazy;       /* the first launch of an unloaded kernel waits for its context */
	bool elsewhere;  /* address ranges ignore the requested address */
	uint64_t granularity; /* of physical memory, bytes */
	bool ipc;        /* devices say that they can share memory by handles */
	bool apart;      /* no device can access another's memory */
	bool blocking;   /* a launch returns when it is complete: CUDA_LAUNCH_BLOCKING, as with a GPU */
	char *refused_name; /* modules that contain it do not load */
};
extern struct sim_settings sim_settings;

bool settings_load(void); /* once; false when a variable makes no sense, which it has then said */
uint64_t sim_mix(uint64_t value);

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
CUresult sim_enter(CUcontext *ctx); /* needs a current context that is alive and sound */
CUresult sim_enter_driver(void);    /* needs cuInit only */
CUresult sim_leave(CUresult result); /* gives the lock back and returns result */
extern pthread_mutex_t sim_mutex; /* the lock itself: for waits */
CUresult sim_life(void);                     /* 3 before cuInit and in a forked child, 4 at exit */
struct sim_thread *sim_thread(void);
void sim_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
CUresult sim_unsupported(const char *call); /* says so on stderr */
CUresult sim_refuse(const char *call);      /* the same, for a call that does nothing else */
bool sim_allocation_fails(void);            /* counts an allocation call for TT_SIM_FAULT=oom:N */
void *sim_alloc(size_t size);               /* zeroed; never NULL */
void *sim_copy(const void *from, size_t size);

void handle_add(const void *object, enum handle_kind kind);
void handle_remove(const void *object);
bool handle_is(const void *object, enum handle_kind kind);

/* ---- device.c ---- */

struct sim_device {
	CUcontext primary;      /* made on first use and then kept, so that its handle stays */
	unsigned primary_flags;
	uint64_t used;          /* bytes allocated */
	uint64_t kept;          /* of them: of modules that were unloaded, until an allocation needs them */
	CUmemoryPool default_pool, pool;
	unsigned graph_memory_reserved;
};
extern struct sim_device sim_devices[SIM_MAX_DEVICES];

bool device_valid(CUdevice device);
bool device_charge(int device, uint64_t bytes); /* false when it has not that much left */
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
	unsigned retained;       /* primary: how often */
	unsigned long long id;
	CUresult fault;          /* what every call returns since a kernel failed */
	CUstream legacy;
	struct stream_list streams; /* all of them, the default ones included */
	struct event_list events;
	struct module_list modules;
	struct array_list arrays;
	struct mipmap_list mipmaps;
	struct op_list pending;  /* unfinished work, in order of submission */
	unsigned pending_count;
	uint64_t peers;          /* bit per device whose memory is open to kernels */
	size_t limits[CU_LIMIT_MAX];
	CUfunc_cache cache;
	CUsharedconfig shared_config;
	CUgreenCtx green;
	CUcontext older; /* every context ever made: none is freed, so that a handle stays dead */
};

CUcontext context_make(int device, unsigned flags);
void context_start(CUcontext ctx, unsigned flags); /* again, after context_end */
void context_settle(CUcontext ctx); /* until all its work is done and nothing runs */
void context_end(CUcontext ctx); /* all that it holds is gone; it has to be settled */
CUcontext context_current(void);
CUcontext context_newest(void); /* then its older, and so on: every context there ever was */
bool context_alive(CUcontext ctx); /* any pointer */
void context_fault(CUcontext ctx, CUresult fault);
void context_wait(CUcontext ctx); /* until all work submitted so far is done */
void contexts_wait(void); /* the same for all of them, and until nothing runs */
uint64_t context_reach(CUcontext ctx); /* devices whose memory its kernels may use, a bit each */

/* ---- context_settings.c ---- */

void context_default_settings(CUcontext ctx);
bool context_flags_good(unsigned flags);

/* ---- region.c: which addresses hold what ---- */

enum region_kind { REGION_DEVICE, REGION_POOL, REGION_VMM, REGION_GLOBAL, REGION_MANAGED, REGION_HOST, REGION_REGISTERED };

struct region {
	uint64_t base;
	size_t size;
	unsigned char *memory;  /* where the simulator itself reads and writes it */
	enum region_kind kind;
	int device;             /* -1: host memory */
	CUcontext ctx;          /* that it belongs to, or NULL */
	uint64_t readers, writers; /* devices, a bit each */
	unsigned flags;         /* as given by the caller */
	bool read_only;         /* to kernels: __constant__ */
	bool sync_memops;
	unsigned long long id;
	size_t charged;         /* bytes of the device it counts for */
	bool dying;             /* its free was submitted */
	/* REGION_POOL */
	CUmemoryPool pool;
	bool of_graph;
	bool dead;              /* to be deleted as soon as nothing runs */
	CUstream freed_on;
	/* REGION_VMM */
	struct physical *physical;
};

bool region_setup(void); /* address ranges of the process; false if they cannot be had */
struct region *region_find(uint64_t address);
struct region *region_from(uint64_t address); /* the first that ends after it */
/* Host pointer for the whole span if one allocation (or adjoining mappings) holds it, else NULL. */
unsigned char *region_span(uint64_t address, size_t size, struct region **first);
struct region *region_next(const struct region *r);
struct region *region_of(uint64_t base, enum region_kind kind, CUcontext ctx);
/* The same without the lock, for running work: NULL unless all of the span may be used so. */
struct region_access {
	int device;     /* -1: any that has access */
	uint64_t reach; /* devices whose ordinary memory is open, a bit each */
	bool write, kernel, recorder; /* a kernel; one of the recorder's */
};
void *region_resolve(uint64_t address, size_t size, const struct region_access *access);
/* "byte 4 of an allocation of 100 bytes", without the lock: the same in every run of a program. */
void region_describe(uint64_t address, char *text, size_t size);
bool region_usable(const struct region *r); /* by new work: not about to be freed */
unsigned access_flags(const struct region *r, CUcontext ctx); /* CU_MEM_ACCESS_FLAGS_… that a context has */
bool region_overlaps(uint64_t address, size_t size);
void region_renew(struct region *r); /* the same memory as another allocation */
void region_allow(struct region *r, uint64_t readers, uint64_t writers);
struct region *region_at(uint64_t base, size_t size, enum region_kind kind, int device, unsigned char *memory, CUcontext ctx);
void region_remove(struct region *r); /* forgets it; the memory stays */
CUresult region_new(int device, CUcontext ctx, size_t size, size_t align, enum region_kind kind,
		    struct region **out); /* device memory, charged to the device */
void region_delete(struct region *r); /* unmaps, refunds and forgets device memory */

/* ---- storage.c: the bytes behind regions ---- */

unsigned char *storage_new(size_t size); /* filled with garbage; NULL when there is none */
void storage_delete(unsigned char *memory, size_t size);
void storage_garbage(unsigned char *memory, size_t size);
#define STORAGE_FILE_NAME "ttanalyze simulator memory"
/* Garbage that can be mapped again; with file, by others too, through that descriptor. */
unsigned char *storage_shared(size_t size, int *file);

struct sim_work;

/* ---- vmm.c ---- */

struct physical {
	unsigned handles, mappings; /* it lives while there is either */
	unsigned char *memory; /* a shared mapping, of which every other is a second view */
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
	uint64_t readers; /* devices that may use its memory, a bit each */
	unsigned live;    /* regions that are its */
	bool destroyed;
};

CUmemoryPool pool_default(int device);
/* stream (or NULL) may take over what it is about to free. */
CUresult pool_take(CUmemoryPool pool, CUstream stream, size_t size, struct region **out);
CUresult pool_free(struct region *r); /* at once, once the work submitted so far is done */
/* From now on it is there from a launch of that allocation node to the next free. */
void pool_keep_for_graph(struct region *r, struct sim_work *work);
void pool_bury(void); /* deletes what is dead; only while nothing runs */
void pool_graph_launched(const struct sim_work *work); /* a graph with that node was */
bool pool_graph_memory_live(const struct sim_work *work);
void pool_alloc_run(const struct sim_work *work);
void pool_forget_node(const struct sim_work *work); /* no graph has that allocation node now */
void pool_free_run(const struct sim_work *work); /* a free has its turn */

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
	bool peers; /* between contexts: neither device needs access to the other's memory */
};

struct sim_work {
	unsigned refs;
	enum work_type type;
	CUcontext ctx;
	union {
		struct {
			CUfunction function;
			CUkernel kernel; /* as it was launched, or NULL */
			unsigned grid[3], block[3], cluster[3];
			unsigned shared;
			bool cooperative;
			unsigned char *params;
			void **pointers; /* to each parameter in params */
		} kernel;
		struct {
			struct copy copy;
			unsigned char *staged; /* what a pageable source held when the call was made */
		} copy;
		struct {
			CUdeviceptr dst;
			size_t pitch, width, height;
			unsigned value, element; /* width counts elements of that many bytes */
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
			CUmemAccessDesc *access; /* as the node was given */
			size_t access_count;
			CUmemPoolProps properties;
		} pool;
		struct {
			unsigned count;
			CUstreamBatchMemOpParams *ops;
		} memops;
		struct {
			CUgraphExec root; /* of the launch */
			const struct exec_node *node; /* what is to run goes between this and end; NULL: the launch begins */
			struct sim_op *end;
		} condition;
	};
};

struct sim_work *work_new(enum work_type type, CUcontext ctx);
struct sim_work *work_ref(struct sim_work *w);
void work_unref(struct sim_work *w);

/* In which order a kernel's blocks and warps run (0: one after the other), and which blocks run now; count 0: all. */
struct work_part {
	uint64_t schedule_seed, first, count;
};

CUresult work_run(struct sim_work *w, const struct work_part *part, char *why, size_t size); /* no lock */

/* ---- trace.c: for who follows the work ---- */

struct sim_op;
uint64_t trace_now(void);
uint32_t trace_submitted(void);
void trace_ran(const struct sim_op *op, uint64_t begin);
void trace_waited(CUcontext ctx, uint32_t correlation, uint64_t begin);

/* ---- sched.c: the order in which work runs ---- */

struct sim_op {
	unsigned refs;
	uint64_t seq; /* order of submission */
	struct sim_work *work;
	CUcontext ctx;
	bool done;
	unsigned blockers; /* unfinished operations it comes after */
	struct sim_op **dependents;
	unsigned dependent_count, dependent_room;
	unsigned step; /* next part of WORK_MEMOPS */
	uint64_t blocks; /* of WORK_KERNEL that have run */
	uint64_t begin_ns; /* when the first did; 0 until then */
	bool fails;    /* TT_SIM_FAULT=launch:N has chosen it */
	uint64_t finished_ns;
	uint32_t correlation; /* trace.c */
	uint64_t node; /* the executable graph's number and the node's, else 0 */
	TAILQ_ENTRY(sim_op) pending, ready;
};

struct sim_op *op_new(CUcontext ctx, struct sim_work *work); /* takes over the reference to work */
void op_after(struct sim_op *op, struct sim_op *earlier);    /* earlier may be NULL */
void op_submit(struct sim_op *op);
struct sim_op *op_ref(struct sim_op *op);
void op_unref(struct sim_op *op); /* NULL is fine */
void op_wait(struct sim_op *op);  /* drives the engine; the lock is free meanwhile */
bool op_step(void);               /* runs one item if any can run */
void op_look(struct sim_op *op);  /* has one run by another thread, as somebody wants to know whether op is done */
void engine_quiesce(void);        /* waits until nothing runs */
void engine_call_host(struct sim_work *work); /* WORK_HOST, at once, on the thread for such */
void engine_relieve(void);        /* runs work while too much is queued */
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
	bool destroyed;       /* kept until its work is done: the legacy stream still waits for that */
	uint64_t thread;      /* whose default stream it is, or 0 */
	struct sim_op *last;  /* newest operation, finished or not */
	struct capture *capture;
	struct edges deps;    /* what the next captured node comes after */
	CUgraphNode *info_nodes; /* deps, as they were last handed out */
	CUgraphEdgeData *info_data;
	CUstreamAttrValue attributes[SIM_STREAM_ATTRIBUTES];
	LIST_ENTRY(CUstream_st) all;
};

CUresult stream_get(CUcontext ctx, CUstream handle, CUstream *out);
CUstream stream_make(CUcontext ctx, unsigned flags, int priority);
void stream_delete(CUstream stream);
/* Puts work (whose reference it takes) at the stream's end, or into the graph being captured. */
CUresult stream_submit(CUstream stream, struct sim_work *work, struct sim_op **out);
/* The same without regard to captures, after also as well (which may be NULL); borrowed. */
struct sim_op *stream_push(CUstream stream, struct sim_work *work, struct sim_op *also);
void stream_wait(CUstream stream); /* until its work of now is done */
CUresult stream_check_legacy(CUstream stream); /* 906 where legacy order meets a capture */

/* ---- event.c ---- */

struct CUevent_st {
	unsigned refs;
	CUcontext ctx;
	unsigned flags;
	struct sim_op *op;             /* newest record, or NULL */
	unsigned long long capture_id; /* recorded last in that capture, or 0 */
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
	CUkernel kernel; /* of a library, or NULL */
	int dynamic_shared_max, carveout, large_clusters, cluster_policy;
	bool loaded;
};

struct CUmod_st {
	CUcontext ctx;
	ptx_module *code;
	CUlibrary library; /* that it belongs to, or NULL */
	struct CUfunc_st *functions;
	size_t function_count;
	struct region **globals;
	size_t global_count;
	bool starved; /* there was no memory for one of them */
	bool charged; /* for memory of its own */
	LIST_ENTRY(CUmod_st) all;
};

/* On failure the reason, one line, is in log. */
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

/* The PTX text of an image, malloced; else what a real driver calls an image of that kind. */
CUresult image_text(const void *image, char **text, char *log, size_t log_size);
CUresult image_read(const char *path, void **image); /* the whole file, malloced, ending in zeros */
void image_report(const char *log, unsigned count, const CUjit_option *options, void **values);

/* ---- launch.c ---- */

/* ctx is the one to run in; f as the caller gave it, a kernel perhaps. */
CUresult launch_work(CUcontext ctx, const CUlaunchConfig *config, CUfunction f, void **params, void **extra,
		     struct sim_work **out);
CUresult launch_check_cluster(const struct sim_work *work);

/* ---- copy.c, fill.c, memop.c ---- */

CUresult copy_check(CUcontext ctx, struct copy *c, bool *pageable_src, bool *pageable_dst);
struct sim_work *copy_work(CUcontext ctx, const struct copy *c); /* of a copy that was checked */
struct copy copy_from_3d(const CUDA_MEMCPY3D *from);
CUDA_MEMCPY3D copy_to_3d(const struct copy *c);
CUstream own_stream(CUstream handle); /* as the per-thread variants of calls understand it */
CUresult copy_run(CUcontext ctx, const struct copy *c, const unsigned char *staged);
CUresult fill_check(CUcontext ctx, CUdeviceptr dst, size_t pitch, unsigned element, size_t width, size_t height);
CUresult memops_check(CUcontext ctx, unsigned count, const CUstreamBatchMemOpParams *ops);
/* Does parts from *step on, up to a wait whose value is not there yet; true when all are done. */
bool memops_advance(struct sim_work *work, unsigned *step, CUresult *result);
bool memops_blocked(const struct sim_work *work, unsigned step);
CUresult fill_run(CUcontext ctx, CUdeviceptr dst, size_t pitch, unsigned element, unsigned value, size_t width, size_t height);

/* ---- array.c ---- */

struct CUarray_st {
	unsigned refs; /* the handle, and copies that are still to run */
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

CUresult capture_forbids(void); /* for calls that could break a capture: 900, and it is broken */
CUresult capture_forbids_context(CUcontext ctx); /* waiting for a context with captures: 900 */
CUresult capture_add(CUstream stream, struct sim_work *work);
CUresult capture_record(CUstream stream, CUevent event);
CUresult capture_wait(CUstream stream, CUevent event);
void capture_invalidate(struct capture *c);
void capture_leave(CUstream stream); /* a stream that is destroyed */
struct capture *capture_blocking(CUcontext ctx); /* one that a legacy operation would meet */
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
	size_t mark;        /* scratch of walks */
	TAILQ_ENTRY(CUgraphNode_st) all, end;
};

struct user_reference {
	CUuserObject object;
	unsigned count;
};

struct CUgraph_st {
	TAILQ_HEAD(node_list, CUgraphNode_st) nodes; /* in order of creation */
	TAILQ_HEAD(, CUgraphNode_st) last; /* nodes that nothing comes after, the newest such first */
	size_t count;
	unsigned long long id;
	unsigned made;      /* nodes, with those that are gone */
	CUgraphNode parent; /* child graph node that owns it */
	CUgraph origin;     /* graph it was cloned from */
	struct user_reference *objects;
	size_t object_count;
};

void edges_set(struct edges *e, const struct edge *items, size_t count);
void edges_add(struct edges *e, const struct edge *items, size_t count); /* but no node twice */
CUgraph graph_make(void);
unsigned graph_next_number(void); /* of graphs, executable ones as well */
void graph_delete(CUgraph graph);
/* Takes over work, or child, when it succeeds. */
CUresult graph_add(CUgraph graph, CUgraphNodeType type, struct sim_work *work, CUgraph child, const struct edge *deps,
		   size_t count, CUgraphNode *out);
/* INVALID_VALUE where the graph may not be copied. */
CUresult graph_copy(CUgraph graph, CUgraph *out);
/* Every node after all it depends on, malloced; NULL when there is a cycle. */
CUgraphNode *graph_order(CUgraph graph);
CUresult graph_edges_from(CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
			  struct edge **out); /* malloced */
CUgraphNodeType work_node_type(const struct sim_work *work);
/* conditional.c */
CUresult conditional_check(CUgraph graph, const CUDA_CONDITIONAL_NODE_PARAMS *p);
void conditional_make(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS *p); /* its bodies */
/* Of all conditions of an executable graph: true where the others do not matter any more. */
bool conditional_is_any(struct condition *c);
bool conditional_is_taken(struct condition *c); /* by an executable graph: there may be one at a time */
bool conditional_take(struct condition *c);
bool conditional_give_back(struct condition *c);
bool conditional_begin(struct condition *c); /* a launch: the value is what its handle was made with */
/* Which of so many bodies runs now; that number: none. */
unsigned conditional_body(const struct condition *c, CUgraphConditionalNodeType type, unsigned count);
bool conditional_set(uint64_t handle, uint32_t value); /* by a kernel; takes no lock */

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
	unsigned *before; /* indices of nodes it comes after */
	unsigned before_count;
	bool disabled;
};

struct CUgraphExec_st {
	unsigned refs; /* the program's, and those of conditions that are yet to be looked at */
	CUcontext ctx;
	unsigned number;
	unsigned long long flags;
	struct exec_node *nodes; /* every node after all it depends on */
	unsigned count;
	unsigned *ends; /* those that nothing comes after */
	size_t end_count;
	struct sim_op *last; /* end of the newest launch: launches of one graph do not overlap */
	struct user_reference *objects;
	size_t object_count;
};

CUresult exec_set_work(CUgraphExec exec, CUgraphNode node, struct sim_work *work);
CUresult exec_make(CUcontext ctx, CUgraph graph, unsigned long long flags, CUgraphExec *out, CUgraphNode *failed);
void exec_unref(CUgraphExec exec);
void exec_delete(CUgraphExec exec);
CUresult exec_enter(CUgraphExec exec); /* INVALID_VALUE where it is none; else followed by sim_leave */
void exec_condition(struct sim_op *op); /* of WORK_CONDITION, which is about to be finished */

/* The graphs that a node holds: a child graph, or the bodies of a condition. */
static inline unsigned exec_inside_count(const struct exec_node *n)
{
	return n->child ? 1 : n->body_count;
}

static inline CUgraphExec exec_inside(const struct exec_node *n, unsigned i)
{
	return n->child ? n->child : n->bodies[i];
}

#endif
