/*
 * The calls of CUPTI and the members of its records that we use. They are unchanged since CUDA
 * 12.0.
 */
#ifndef TT_CUPTI_ABI_H
#define TT_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

typedef int CUptiResult;
#define CUPTI_SUCCESS 0
#define CUPTI_ERROR_MULTIPLE_SUBSCRIBERS 39
#define CUPTI_ERROR_UNKNOWN 999
#define CUPTI_OLDEST 18 /* the version of CUDA 12.0: earlier records are laid out differently */

enum cupti_kind {
	CUPTI_MEMCPY = 1,
	CUPTI_MEMSET = 2,
	CUPTI_KERNEL = 3,
	CUPTI_CONCURRENT_KERNEL = 10,
	CUPTI_MEMCPY_PEER = 22,
};
#define CUPTI_FLUSH_FORCED 1
#define CUPTI_ZEROED_BUFFERS 5 /* an attribute, of one byte: buffers are given zeroed */
#define CUPTI_DRIVER_API 1 /* a domain of callbacks */
#define CUPTI_ENTER 0

struct cupti_record {
	uint32_t kind;
};

struct cupti_kernel {
	uint32_t kind;
	uint8_t attributes[12];
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	uint8_t shape[40];
	uint32_t correlation;
	int64_t grid;
	const char *name;
	uint8_t latency[32];
	uint64_t node;
};

/* Copies and sets. */
struct cupti_transfer {
	uint32_t kind;
	uint32_t what;
	uint64_t bytes, start, end;
	uint32_t device, context, stream;
	uint32_t correlation; /* not of copies between devices */
	uint8_t other[12];
	uint32_t correlation_peer; /* of these */
	uint64_t node;        /* not of these */
	uint64_t node_peer;
};

/* Of a call. */
struct cupti_call {
	uint32_t site;
	const char *name;
	const void *params;
	void *result;
	const char *symbol;
	CUcontext context;
	uint32_t context_id;
	uint64_t *data;
	uint32_t correlation;
};

typedef void (*cupti_callback)(void *user, uint32_t domain, uint32_t id, const struct cupti_call *call);
typedef void (*cupti_request)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*cupti_complete)(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t used);

/* name, parameters */
#define CUPTI_TABLE(X) \
	X(cuptiGetVersion, (uint32_t *version)) \
	X(cuptiActivityRegisterTimestampCallback, (uint64_t (*now)(void))) \
	X(cuptiActivitySetAttribute, (uint32_t attribute, size_t *size, void *value)) \
	X(cuptiActivityRegisterCallbacks, (cupti_request request, cupti_complete complete)) \
	X(cuptiActivityEnable, (uint32_t kind)) \
	X(cuptiActivityDisable, (uint32_t kind)) \
	X(cuptiActivityFlushAll, (uint32_t flags)) \
	X(cuptiActivityGetNextRecord, (uint8_t *buffer, size_t used, struct cupti_record **record)) \
	X(cuptiActivityGetNumDroppedRecords, (CUcontext context, uint32_t stream, size_t *dropped)) \
	X(cuptiGetContextId, (CUcontext context, uint32_t *id)) \
	X(cuptiSubscribe, (void **subscriber, cupti_callback callback, void *user)) \
	X(cuptiEnableCallback, (uint32_t enable, void *subscriber, uint32_t domain, uint32_t id)) \
	X(cuptiGetCallbackName, (uint32_t domain, uint32_t id, const char **name)) \
	X(cuptiUnsubscribe, (void *subscriber))

#endif
