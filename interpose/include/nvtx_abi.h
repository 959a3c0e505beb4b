/*
 * The binary interface between a tool and a module that uses NVTX, as far as we need it.
 *
 * Each module has its own tables. An entry points to the variable through which the module calls a
 * function, and a tool stores its function there. A table of an older version is shorter and has
 * its length.
 */
#ifndef TT_NVTX_ABI_H
#define TT_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#define NVTX_INITIALIZE "InitializeInjectionNvtx2"
#define NVTX_INITIALIZE_EXTENSION "InitializeInjectionNvtxExtension"
#define NVTX_VARIABLE "NVTX_INJECTION64_PATH"

typedef void nvtx_function(void);
typedef nvtx_function **nvtx_slot; /* the variable that a module calls through */

/* What a module asks for its tables by. */
enum nvtx_export { NVTX_EXPORT_CALLBACKS = 1 };
typedef const void *nvtx_get_export(uint32_t which);
typedef int nvtx_initialize(nvtx_get_export *get);

struct nvtx_callbacks {
	size_t size;
	int (*table_of)(int part, nvtx_slot **table, unsigned *entries);
};

/* NVTX_PAYLOADS is an extension. A module has its functions in a struct nvtx_extension. */
enum nvtx_part { NVTX_PAYLOADS = 0, NVTX_CORE = 1, NVTX_CUDA = 2, NVTX_CUDART = 4, NVTX_DOMAINS = 5, NVTX_PARTS = 6 };

enum nvtx_core {
	NVTX_MARK_EX = 1,
	NVTX_MARK_A,
	NVTX_MARK_W,
	NVTX_START_EX,
	NVTX_START_A,
	NVTX_START_W,
	NVTX_END,
	NVTX_PUSH_EX,
	NVTX_PUSH_A,
	NVTX_PUSH_W,
	NVTX_POP,
	NVTX_NAME_THREAD_A = 14,
	NVTX_NAME_THREAD_W,
};

enum nvtx_domains {
	NVTX_DOMAIN_MARK = 1,
	NVTX_DOMAIN_START,
	NVTX_DOMAIN_END,
	NVTX_DOMAIN_PUSH,
	NVTX_DOMAIN_POP,
	NVTX_DOMAIN_REGISTER_A = 10,
	NVTX_DOMAIN_REGISTER_W,
	NVTX_DOMAIN_CREATE_A,
	NVTX_DOMAIN_CREATE_W,
};

enum nvtx_cuda { NVTX_CUDA_STREAM_A = 5, NVTX_CUDA_STREAM_W };
enum nvtx_cudart { NVTX_CUDART_STREAM_A = 3, NVTX_CUDART_STREAM_W };

enum nvtx_payloads {
	NVTX_MARK_PAYLOAD = 2,
	NVTX_PUSH_PAYLOAD,
	NVTX_POP_PAYLOAD,
	NVTX_START_PAYLOAD,
	NVTX_END_PAYLOAD,
};

#define NVTX_FUNCTIONS 16 /* above the last of any part */

/* What a module passes for each of its extensions. */
struct nvtx_segment {
	size_t number;
	size_t count;
	nvtx_function **functions; /* from 0, unlike the tables of other parts */
};

struct nvtx_extension {
	uint16_t version;
	uint16_t size; /* of the structure */
	uint16_t module;
	uint16_t compatible; /* major version in the high byte */
	size_t segment_count;
	struct nvtx_segment *segments;
};

#define NVTX_PAYLOADS_MODULE 2
#define NVTX_PAYLOADS_MAJOR 1

typedef int nvtx_initialize_extension(struct nvtx_extension *extension);

/* Domains and registered messages are whatever the tool gave for them. */
typedef uint64_t nvtx_handle;

enum nvtx_message { NVTX_ASCII = 1, NVTX_WIDE = 2, NVTX_REGISTERED = 3 };
#define NVTX_ARGB 1

/* A payload with members of its own, as NCCL attaches. The attributes point to `reserved` of them. */
#define NVTX_PAYLOAD_EXTENDED ((int32_t)0xDFBD0009)

struct nvtx_extended {
	uint64_t schema;
	size_t size; /* SIZE_MAX: unknown */
	const void *bytes;
};

struct nvtx_attributes {
	uint16_t version;
	uint16_t size; /* of the structure, which a later version may add to */
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type; /* as enum tt_payload */
	int32_t reserved;     /* of NVTX_PAYLOAD_EXTENDED: how many */
	uint64_t payload;
	int32_t message_type;
	union {
		const char *ascii;
		const wchar_t *wide;
		nvtx_handle registered;
	} message;
};

#endif
