/*
 * Data structures that the files of the PTX interpreter share: parsed form, decoded form, state of a
 * running grid.
 *
 * Invariant: a loaded module is read-only, so any number of launches may run from it at once. Everything a
 * launch changes belongs to its struct ptx_run.
 */
#ifndef TT_SIM_PTX_INTERNAL_H
#define TT_SIM_PTX_INTERNAL_H

#include <setjmp.h>

#include "sim/ptx/ptx.h"
#include "sim_delay.h"

#define PTX_WARP 32

/* A loop over lanes whose iterations do not depend on each other. */
#ifdef __clang__
#define INDEPENDENT /* clang warns of each loop that it then does not vectorise */
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define PTX_EVERYONE 0xffffffffu
#define PTX_BARRIERS 16
#define PTX_CLUSTER_BARRIER PTX_BARRIERS /* the number of the one of a cluster: TT_CLUSTER_BARRIER */
#define PTX_MAX_VECTOR 4
#define PTX_NESTING 32 /* maximum depth of braces and operand lists; also limits the parser's recursion */

/* Generic addresses of the spaces that are not device memory; each window is 4 GiB. */
#define PTX_WINDOW 0x100000000ull
#define PTX_PARAM_WINDOW 0x3000000000000000ull
#define PTX_SHARED_WINDOW 0x4000000000000000ull
#define PTX_RANK_SHIFT 24 /* of an address in shared memory: 1 + rank of a block in its cluster; 0: the own one */
#define PTX_LOCAL_WINDOW 0x5000000000000000ull
#define PTX_CODE_WINDOW 0x6000000000000000ull
#define PTX_WORKSPACE 0x7000000000000000ull
#define PTX_WORKSPACE_BYTES 64

enum ptx_type {
	PTX_NONE,
	PTX_B8,
	PTX_U8,
	PTX_S8,
	PTX_B16,
	PTX_U16,
	PTX_S16,
	PTX_F16,
	PTX_B32,
	PTX_U32,
	PTX_S32,
	PTX_F32,
	PTX_F16X2,
	PTX_B64,
	PTX_U64,
	PTX_S64,
	PTX_F64,
	PTX_PRED,
};

enum ptx_space {
	PTX_SPACE_GENERIC,
	PTX_SPACE_GLOBAL,
	PTX_SPACE_CONST,
	PTX_SPACE_SHARED,
	PTX_SPACE_LOCAL,
	PTX_SPACE_PARAM, /* of the kernel */
	PTX_SPACE_FRAME, /* parameters of device functions and calls: the thread's stack */
	PTX_SPACE_REG,
};

static inline size_t ptx_align_up(size_t n, size_t align)
{
	return (n + align - 1) & ~(align - 1);
}

/* --- text --- */

struct ptx_arena {
	struct ptx_arena_block *blocks;
};

struct ptx_map {
	const char **keys;
	void **values;
	size_t capacity, count;
};

enum ptx_token_kind { PTX_END, PTX_WORD, PTX_INTEGER, PTX_FLOAT32, PTX_FLOAT64, PTX_STRING, PTX_PUNCTUATION };

struct ptx_token {
	enum ptx_token_kind kind;
	char punctuation;
	unsigned line;
	const char *text;
	size_t length;
	uint64_t bits; /* of a number; a decimal fraction is a FLOAT64 */
};

/* Position in the text, and the exit of the loader: ptx_reject jumps to escape. */
struct ptx_source {
	const char *at;
	unsigned line;
	struct ptx_token token; /* the next token */
	double version; /* of the text */
	struct ptx_arena *arena;
	jmp_buf escape;
	char *error;
	size_t error_size;
};

void *ptx_arena_take(struct ptx_source *s, size_t size);
void ptx_arena_release(struct ptx_arena *arena);
/* Doubles an arena array when count has reached its capacity. */
void *ptx_arena_grow(struct ptx_source *s, void *array, size_t count, size_t *capacity, size_t element);
const char *ptx_arena_string(struct ptx_source *s, const char *text, size_t length);
void ptx_map_put(struct ptx_source *s, struct ptx_map *m, const char *key, void *value);
void *ptx_map_get(const struct ptx_map *m, const char *key);

void ptx_advance(struct ptx_source *s);
void ptx_skip_line(struct ptx_source *s);
_Noreturn void ptx_reject(struct ptx_source *s, unsigned line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* --- parsed form --- */

struct ptx_variable {
	const char *name;
	uint8_t space, type;
	bool external, managed, unsized, entry_parameter, placing, placed;
	unsigned line;
	size_t align, size;
	uint64_t address; /* in device memory, or the offset in its space */
	uint32_t reg;     /* of a .reg parameter */
	uint8_t *init;
	size_t relocation_count;
	struct ptx_relocation {
		size_t offset, width;
		const char *name;
		int64_t addend;
		uint64_t mask; /* 0: the whole address, else which byte of it */
		unsigned line;
	} *relocations;
};

struct ptx_register {
	uint8_t type;
	uint32_t row; /* its operand in the decoded form: see ptx_op */
};

enum ptx_operand_kind {
	PTX_OPERAND_REGISTER,
	PTX_OPERAND_INTEGER,
	PTX_OPERAND_FLOAT32,
	PTX_OPERAND_FLOAT64,
	PTX_OPERAND_VARIABLE,
	PTX_OPERAND_NAME, /* a special register, a label, a function */
	PTX_OPERAND_ADDRESS, /* elements[0] + bits */
	PTX_OPERAND_VECTOR,
	PTX_OPERAND_LIST,
	PTX_OPERAND_SINK,
};

struct ptx_operand {
	uint8_t kind;
	bool negated, paired;
	unsigned count;
	uint32_t reg, pair; /* registers of the function; pair is the register after '|' */
	uint64_t bits;      /* a constant's value, or the offset added to a name */
	const char *name;
	const struct ptx_variable *variable;
	struct ptx_operand *elements;
};

struct ptx_statement {
	const char *opcode;
	unsigned line, scope, count;
	bool guarded, guard_negated;
	uint32_t guard;
	struct ptx_operand *operands;
};

/* Targets of an indexed branch, or the signature of an indirect call. */
struct ptx_table {
	unsigned count;
	const char **labels;
	struct ptx_variable *parameters, *returns;
	size_t parameter_count, return_count;
};

struct ptx_label {
	size_t statement;
	struct ptx_table *table; /* NULL for a plain label */
};

struct ptx_function {
	const char *name;
	ptx_module *module;
	bool entry, defined;
	unsigned line;
	ptx_function_info info;
	struct ptx_variable **parameters, **returns;
	size_t parameter_count, return_count;
	struct ptx_register *registers;
	size_t register_count;
	struct ptx_statement *statements;
	size_t statement_count;
	unsigned *scopes; /* each scope's parent; 0 is the body itself, its own parent */
	size_t scope_count;
	struct ptx_map labels; /* "name@scope" */
	struct ptx_variable **shared;
	size_t shared_count;
	size_t frame_bytes; /* of the thread's stack: local variables, parameters, those of its calls */

	uint32_t index, first, rows32, rows64, predicates;
	uint32_t rows_saved; /* by sharing; one of 64 bits counts as two */
	const uint32_t *first_of; /* the first operation of each statement */
	size_t unsupported; /* 1 + index of the first such operation; of a kernel: reachable from it */
	const struct ptx_function **callees;
	size_t callee_count;
	size_t callee_capacity;
	bool uses_common_shared, calls_by_address, reached;
};

struct ptx_module {
	struct ptx_arena arena;
	struct ptx_map names; /* of functions and module variables: struct ptx_name */
	struct ptx_function **functions;
	size_t function_count, entry_count;
	const ptx_function **entries;
	struct ptx_variable **variables;
	size_t variable_count;
	size_t common_shared; /* bytes of .shared variables that several kernels may use */
	size_t dynamic_align; /* of dynamic shared memory */
	struct ptx_op *code;
	size_t code_count;
	uint8_t *constants;
	size_t constant_bytes;
	uint32_t *operands; /* for each statement the number of its registers, then their rows */
	bool any_delays;
	uint8_t *delayed; /* by operation; NULL: none */
	struct tt_sim_delay *delays;
};

struct ptx_name {
	struct ptx_function *function;
	struct ptx_variable *variable;
};

void ptx_parse(struct ptx_source *s, ptx_module *m);
void ptx_decode(struct ptx_source *s, ptx_module *m);
size_t ptx_type_size(enum ptx_type t);
enum ptx_type ptx_type_named(const char *name, size_t length);

/* --- decoded form --- */

/*
 * Operands are rows of 32 lanes: the low 30 bits are a byte offset, the top 2 say in which file.
 * Rows of up to 32 bits hold 32 uint32_t, wider ones 32 uint64_t; values narrower than 32 bits
 * are kept zero-extended. Predicates are one bit per lane; a predicate operand is its index
 * times 2, plus 1 if negated, and predicate 0 is always true.
 */
enum ptx_file { PTX_FILE_32, PTX_FILE_64, PTX_FILE_SPECIAL, PTX_FILE_CONSTANT };

#define PTX_ROW(file, offset) ((uint32_t)(file) << 30 | (uint32_t)(offset))
#define PTX_ROW_OFFSET(row) ((row) & 0x3fffffffu)
#define PTX_NO_ROW 0xffffffffu
#define PTX_TRUE 0u

enum ptx_special {
	PTX_S_TID_X,
	PTX_S_TID_Y,
	PTX_S_TID_Z,
	PTX_S_NTID_X,
	PTX_S_NTID_Y,
	PTX_S_NTID_Z,
	PTX_S_CTAID_X,
	PTX_S_CTAID_Y,
	PTX_S_CTAID_Z,
	PTX_S_NCTAID_X,
	PTX_S_NCTAID_Y,
	PTX_S_NCTAID_Z,
	PTX_S_LANEID,
	PTX_S_WARPID,
	PTX_S_NWARPID,
	PTX_S_SMID,
	PTX_S_NSMID,
	PTX_S_GRIDID,
	PTX_S_LANEMASK_EQ,
	PTX_S_LANEMASK_LT,
	PTX_S_LANEMASK_LE,
	PTX_S_LANEMASK_GT,
	PTX_S_LANEMASK_GE,
	PTX_S_CLUSTERID_X,
	PTX_S_CLUSTERID_Y,
	PTX_S_CLUSTERID_Z,
	PTX_S_NCLUSTERID_X,
	PTX_S_NCLUSTERID_Y,
	PTX_S_NCLUSTERID_Z,
	PTX_S_CLUSTER_CTAID_X,
	PTX_S_CLUSTER_CTAID_Y,
	PTX_S_CLUSTER_CTAID_Z,
	PTX_S_CLUSTER_NCTAID_X,
	PTX_S_CLUSTER_NCTAID_Y,
	PTX_S_CLUSTER_NCTAID_Z,
	PTX_S_CLUSTER_CTARANK,
	PTX_S_CLUSTER_NCTARANK,
	PTX_S_DYNAMIC_SHARED_SIZE,
	PTX_S_TOTAL_SHARED_SIZE,
	PTX_S_DYNAMIC_SHARED_BASE,
	PTX_S_WORKSPACE_HIGH, /* address of a cooperative grid's workspace */
	PTX_S_WORKSPACE_LOW,
	PTX_S_COUNT,
};

enum ptx_code {
	PTX_OP_ALU,
	PTX_OP_SELECT,    /* dst = src[2] ? src[0] : src[1] */
	PTX_OP_COMPARE,   /* predicates dst and src[3] from compare and predicate src[2] */
	PTX_OP_SET,       /* the same into a row, as imm or 0 */
	PTX_OP_PREDICATE, /* imm is the truth table of src[0] and src[1] */
	PTX_OP_CARRY,
	PTX_OP_TIME,
	PTX_OP_ACTIVE_MASK,
	PTX_OP_FRAME_ADDRESS,
	PTX_OP_LOAD,
	PTX_OP_LOAD_UNIFORM, /* a kernel parameter at a fixed offset */
	PTX_OP_STORE,
	PTX_OP_ATOMIC,
	PTX_OP_BRANCH,
	PTX_OP_BRANCH_TABLE,
	PTX_OP_CALL,
	PTX_OP_CALL_ROW,
	PTX_OP_RETURN,
	PTX_OP_EXIT,
	PTX_OP_TRAP,
	PTX_OP_ASSERT,
	PTX_OP_SET_CONDITION,
	PTX_OP_BARRIER,
	PTX_OP_MBARRIER,
	PTX_OP_COPY, /* bulk if wide; from src[0] in space kind, src[1] bytes, mbarrier src[2], src[3] bytes are given, or of a bulk copy the mask of blocks */
	PTX_OP_TENSOR, /* kind 1: a store; from PTX_TENSOR_REDUCES on: + enum ptx_atomic_kind, a reduction; map src[0], mbarrier src[1], mask of blocks src[2], rows of count coordinates: targets */
	PTX_OP_COLLECTIVE,
	PTX_OP_FENCE,
	PTX_OP_PAUSE,
	PTX_OP_NOTHING,
	PTX_OP_UNSUPPORTED,
};

enum ptx_time_kind { PTX_CLOCK, PTX_CLOCK_HIGH, PTX_CLOCK64, PTX_TIMER, PTX_TIMER_LOW, PTX_TIMER_HIGH };

/* How wide the registers of a load or store are; memory may be narrower. */
enum ptx_element { PTX_ELEMENT_16, PTX_ELEMENT_32, PTX_ELEMENT_64 };

enum ptx_boolean { PTX_AND, PTX_OR, PTX_XOR };

enum ptx_atomic_kind {
	PTX_ATOM_ADD,
	PTX_ATOM_MIN,
	PTX_ATOM_MAX,
	PTX_ATOM_AND,
	PTX_ATOM_OR,
	PTX_ATOM_XOR,
	PTX_ATOM_INC,
	PTX_ATOM_DEC,
	PTX_ATOM_EXCH,
	PTX_ATOM_CAS,
};

#define PTX_TENSOR_REDUCES 2

enum ptx_mbarrier_kind {
	PTX_MBARRIER_INIT,
	PTX_MBARRIER_INVALIDATE,
	PTX_MBARRIER_EXPECT,
	PTX_MBARRIER_COMPLETE,
	PTX_MBARRIER_ARRIVE,
	PTX_MBARRIER_ARRIVE_PART, /* must not complete a phase */
	PTX_MBARRIER_ARRIVE_EXPECT,
	PTX_MBARRIER_DROP,
	PTX_MBARRIER_PENDING,
	PTX_MBARRIER_TEST,
	PTX_MBARRIER_TRY, /* lets others run if the phase has not ended */
};

enum ptx_barrier_kind {
	PTX_BAR_SYNC,
	PTX_BAR_ARRIVE,
	PTX_BAR_POPC,
	PTX_BAR_AND,
	PTX_BAR_OR,
	PTX_BAR_CLUSTER_ARRIVE,
	PTX_BAR_CLUSTER_WAIT
};

enum ptx_collective_kind {
	PTX_SHFL_UP,
	PTX_SHFL_DOWN,
	PTX_SHFL_BFLY,
	PTX_SHFL_IDX,
	PTX_VOTE_ALL,
	PTX_VOTE_ANY,
	PTX_VOTE_UNI,
	PTX_VOTE_BALLOT,
	PTX_MATCH_ANY,
	PTX_MATCH_ALL,
	PTX_REDUX_ADD,
	PTX_REDUX_MIN,
	PTX_REDUX_MAX,
	PTX_REDUX_AND,
	PTX_REDUX_OR,
	PTX_REDUX_XOR,
	PTX_SYNC_WARP,
};

/* Flags of an operation: rounding, then what else changes its arithmetic. */
#define PTX_RN 0
#define PTX_RZ 1
#define PTX_RM 2
#define PTX_RP 3
#define PTX_ROUNDING 3
#define PTX_FTZ 4
#define PTX_SAT 8
#define PTX_TO_INTEGER 16  /* cvt.rni and similar: the float is rounded to a whole number */
#define PTX_ACQUIRE 32
#define PTX_RELEASE 64
#define PTX_STRONG 16384 /* others may access the same memory meanwhile */
#define PTX_SETS_CARRY 128
#define PTX_USES_CARRY 256
#define PTX_HIGH 512
#define PTX_FRAME_RELATIVE 1024 /* the address counts from the frame */
#define PTX_NEGATE_RIGHT 2048   /* sub among the operations with carry */
#define PTX_NARROW_ADDRESS 8192 /* the address row is one of uint32_t */
#define PTX_ROUNDS_NEAREST 4096 /* in a table: only .rn is allowed */
#define PTX_ACCESS 32768        /* the access to memory that its statement asks for */

struct ptx_op;
typedef void (*ptx_alu)(const struct ptx_op *op, void *dst, const void *const *src);
typedef uint32_t (*ptx_compare)(const struct ptx_op *op, const void *const *src);

struct ptx_call {
	const struct ptx_function *callee; /* NULL: by address */
	const struct ptx_variable **arguments, **results;
	size_t argument_count, result_count;
};

struct ptx_op {
	uint8_t code, kind, type, space;
	uint8_t count; /* elements of a load or store */
	uint8_t wide;  /* dst is a row of uint64_t */
	uint16_t flags;
	uint32_t guard;
	uint32_t line;
	union {
		struct {
			uint32_t dst, src[4];
		};
		struct {
			uint32_t address, element[PTX_MAX_VECTOR];
		} memory;
	};
	uint32_t operands; /* of the first operation of a statement: where its rows are in the module's; else 0 */
	union {
		int64_t imm;
		uint64_t target;
	};
	union {
		ptx_alu alu;
		ptx_compare compare;
		const struct ptx_call *call;
		const uint32_t *targets; /* imm of them */
		const char *text;
	};
};

/* How many operands a row of an instruction table has, and how wide: see decode.c. */
struct ptx_alu_entry {
	const char *opcode;
	uint32_t types;
	const char *shape;
	uint16_t flags; /* allowed modifiers: PTX_ROUNDING, PTX_FTZ, PTX_SAT */
	ptx_alu plain, general; /* general: with any of the flags */
};

struct ptx_compare_entry {
	const char *name;
	uint32_t types;
	ptx_compare compare;
};

extern const struct ptx_alu_entry ptx_integer_table[], ptx_bit_table[], ptx_float_table[], ptx_half_table[];
extern const struct ptx_compare_entry ptx_compare_table[];

#define PTX_IS(type) (1u << (type))

/* Conversion between types, of rows as wide as the types; NULL if there is none. */
ptx_alu ptx_conversion(enum ptx_type to, enum ptx_type from, unsigned flags, bool rounded);
uint32_t ptx_carry(const struct ptx_op *op, void *dst, const void *const *src, uint32_t carry);
float ptx_half_to_float(uint16_t h);
uint16_t ptx_half_from(double value, unsigned rounding);

/* --- a running grid --- */

struct ptx_frame {
	struct ptx_frame *parent;
	const struct ptx_function *function;
	const struct ptx_op *call;
	uint32_t return_pc, references, depth;
	size_t row32, row64, predicate, local; /* offsets of its registers and stack */
};

enum ptx_group_state { PTX_RUNS, PTX_AT_BARRIER, PTX_AT_COLLECTIVE };

/* Threads of a warp at one instruction of one frame. */
struct ptx_group {
	uint32_t mask, pc;
	struct ptx_frame *frame;
	uint8_t state, barrier;
	bool delayed; /* it was held up at pc */
	uint32_t members;
	uint64_t stamp; /* value of the warp's clock when it ran last */
	uint32_t beat; /* pc of its last heartbeat */
};

struct ptx_warp {
	struct ptx_cta *cta;
	unsigned index;
	uint32_t live, carry;
	uint32_t arrived; /* at the barrier of the cluster, in its current phase */
	bool runnable;
	bool regroup; /* groups other than the running one have changed */
	bool pause;
	unsigned group_count;
	struct ptx_group groups[PTX_WARP + 1];
	uint64_t clock;
	uint64_t until; /* it is held up until then, by the clock of the run */
	struct ptx_frame *frame; /* the frame that file and predicate belong to */
	uint8_t *file[4];	 /* by enum ptx_file */
	uint32_t *predicate;
	struct ptx_frame *spare;
	/* Storage of frames: 32 lanes in each row, and the threads' stacks in turn. */
	uint8_t *rows32, *rows64, *special, *local;
	uint32_t *predicates;
	size_t rows32_bytes, rows64_bytes, predicate_count, local_bytes;
};

struct ptx_barrier {
	uint32_t expected, arrived, waiting, population;
	bool all, any;
};

struct ptx_cta {
	struct ptx_run *run;
	bool resident;
	bool traced;   /* its instructions are looked at: recorded, or for heartbeats */
	bool recorded;
	uint64_t block; /* number in the grid */
	size_t slot;
	unsigned live, warp_count;
	uint32_t id[3];
	uint64_t clock; /* instructions since it became resident */
	uint8_t *shared;
	struct ptx_barrier barriers[PTX_BARRIERS + 1];
	struct ptx_warp *warps;
};

#define PTX_PAGE 4096
#define PTX_PAGES 256

struct ptx_page {
	uint64_t tag; /* page number plus 1 */
	uint8_t *host; /* NULL: not all of the page is accessible */
};

struct ptx_run {
	const struct ptx_function *kernel;
	const ptx_launch_config *config;
	const struct ptx_op *code;
	ptx_status status;
	char *error;
	size_t error_size;
	uint64_t random, budget;
	uint64_t now; /* instructions, and time that passed while all warps were held up */
	unsigned threads, warps; /* of a CTA */
	size_t static_shared, shared_bytes, parameter_bytes;
	struct ptx_page pages[2][PTX_PAGES]; /* readable, writable */
	_Alignas(64) uint8_t workspace[PTX_WORKSPACE_BYTES]; /* where cooperative grids meet */
	unsigned cluster; /* blocks in one; they have slots side by side, and begin together */
	uint64_t blocks, started, end; /* end: the number of started blocks at the end of this launch */
	struct ptx_trace *trace; /* NULL: it is not traced */
	struct ptx_cta **slots; /* CTAs that are resident, and finished ones for reuse */
	size_t slot_count, slot_limit;
};

/* warp.c */
void ptx_warp_run(struct ptx_warp *w, uint32_t slice);
bool ptx_warp_begin(struct ptx_warp *w, uint32_t threads);
void ptx_warp_release(struct ptx_warp *w);
/* Runs g until it reaches limit, has used its turn, or another group must be chosen; returns the instructions. */
uint32_t ptx_execute(struct ptx_warp *w, struct ptx_group *g, uint32_t limit, uint32_t turn);
/* The same, at most up to the next operation for which stops, by pc, is not 0. */
uint32_t ptx_execute_until(struct ptx_warp *w, struct ptx_group *g, uint32_t limit, uint32_t turn, const uint8_t *stops);
/* Of the threads of mask, which call the same function as the first. */
uint32_t ptx_same_target(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask);
struct ptx_group *ptx_split(struct ptx_warp *w, const struct ptx_group *g, uint32_t mask, uint32_t pc);

/* ptx_frame.c */
bool ptx_frames_begin(struct ptx_warp *w);
void ptx_frames_release(struct ptx_warp *w);
void ptx_enter_frame(struct ptx_warp *w, struct ptx_frame *f);
bool ptx_call(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op, const struct ptx_function *callee);
void ptx_return(struct ptx_warp *w, struct ptx_group *g);
void ptx_frame_drop(struct ptx_warp *w, struct ptx_frame *f);
const struct ptx_function *ptx_function_of(const ptx_module *m, uint64_t address);

/* memory.c, atomic.c; these return false when the launch failed */
bool ptx_load_rows(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask);
bool ptx_load_uniform(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask);
bool ptx_store_rows(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask);
bool ptx_atomic_rows(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask);
/* Copies at once, as an asynchronous copy may. */
bool ptx_copy(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op);
bool ptx_tensor_copy(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op);
bool ptx_atomic_allowed(enum ptx_atomic_kind kind, enum ptx_type type);
/* Combines `from` with what is there, of 4 or 8 bytes. */
void ptx_reduce(enum ptx_atomic_kind kind, enum ptx_type type, uint8_t *to, const uint8_t *from);
/* The map of a tensor copy of a lane, 128 bytes; NULL: it failed. */
const void *ptx_tensor_map(struct ptx_warp *w, const struct ptx_op *op, unsigned lane);
/* Resolves addresses in a row of 64 bits, in place of the operation's own. */
bool ptx_resolve_row(struct ptx_warp *w, const struct ptx_op *op, uint32_t row, enum ptx_space space, uint32_t mask, size_t align,
		     size_t size, bool write, uint8_t **host);
/* The address of shared memory, of a block of the cluster with this rank. */
static inline uint64_t ptx_shared_of(uint64_t address, unsigned rank)
{
	return (address & ~(UINT64_MAX << PTX_RANK_SHIFT & UINT32_MAX)) | (uint64_t)(rank + 1) << PTX_RANK_SHIFT;
}
/* Memory of the row's addresses in shared memory, in the block with this rank; rank -1: the addresses say it. */
bool ptx_resolve_at(struct ptx_warp *w, const struct ptx_op *op, uint32_t row, int rank, uint32_t mask, size_t align, size_t size,
		    bool write, uint8_t **host);
/* The block of a cluster with this rank; NULL: there is none. */
struct ptx_cta *ptx_block_of_cluster(const struct ptx_cta *cta, unsigned rank);
/* Device memory for the operation of a lane; NULL: it failed. */
uint8_t *ptx_device_memory(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t address, size_t size, bool write);
bool ptx_resolve(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, size_t size, bool write, uint8_t **host);
/* The addresses that op computes, as its space counts them. */
void ptx_addresses(const struct ptx_warp *w, const struct ptx_op *op, uint64_t *at);
/* Text at a generic address of global memory, up to the first unreadable byte. */
void ptx_read_string(struct ptx_warp *w, uint64_t address, char *text, size_t size);

/* barrier.c: threads g->mask arrive at op; g may then wait */
bool ptx_barrier_arrive(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op);
bool ptx_collective_arrive(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op);
void ptx_threads_left(struct ptx_warp *w, uint32_t mask);

/* mbarrier.c; these return false when the launch failed */
bool ptx_mbarrier(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op);
/* What a thread does to the object at host; n: threads or bytes. */
bool ptx_mbarrier_apply(struct ptx_warp *w, const struct ptx_op *op, unsigned kind, int lane, uint8_t *host, uint32_t n);

/* delay.c. g comes to a delayed operation, or has waited there. True: its warp waits now. */
bool ptx_hold(struct ptx_warp *w, struct ptx_group *g);
/* Until the end of the first delay. False: no warp is held up. */
bool ptx_pass_time(struct ptx_run *run);

/* builtin.c: functions of the driver */
void ptx_set_condition(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op);
void ptx_fail_assertion(struct ptx_warp *w, struct ptx_group *g, const struct ptx_op *op);

/* trace.c */
ptx_status ptx_trace_begin(struct ptx_run *run);
void ptx_trace_block(struct ptx_cta *cta); /* it begins */
uint32_t ptx_trace_execute(struct ptx_warp *w, struct ptx_group *g, uint32_t limit, uint32_t turn); /* as ptx_execute */
void ptx_trace_state(const struct ptx_warp *w); /* into its heartbeat */

/* launch.c: these end the launch */
ptx_status ptx_refuse(struct ptx_run *run, ptx_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void ptx_fault(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, ptx_status status, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

static inline void *ptx_row(const struct ptx_warp *w, uint32_t row)
{
	return w->file[row >> 30] + PTX_ROW_OFFSET(row);
}

static inline uint32_t ptx_predicate_bits(const struct ptx_warp *w, uint32_t predicate)
{
	return w->predicate[predicate >> 1] ^ -(predicate & 1);
}

/* Lane arrays: rows are reinterpreted by each operation's type. */
typedef uint32_t __attribute__((may_alias)) lane_u32;
typedef int32_t __attribute__((may_alias)) lane_s32;
typedef uint64_t __attribute__((may_alias)) lane_u64;
typedef int64_t __attribute__((may_alias)) lane_s64;
typedef float __attribute__((may_alias)) lane_f32;
typedef double __attribute__((may_alias)) lane_f64;

extern const uint32_t ptx_lane_bit[PTX_WARP];

static inline void ptx_blend(void *dst, const void *from, uint32_t mask, bool wide)
{
	if (wide) {
		lane_u64 *d = dst;
		const lane_u64 *s = from;
		INDEPENDENT
		for (int i = 0; i < PTX_WARP; i++)
			d[i] = mask & ptx_lane_bit[i] ? s[i] : d[i];
	} else {
		lane_u32 *d = dst;
		const lane_u32 *s = from;
		INDEPENDENT
		for (int i = 0; i < PTX_WARP; i++)
			d[i] = mask & ptx_lane_bit[i] ? s[i] : d[i];
	}
}

#endif
