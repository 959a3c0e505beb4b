/*
 * The functions that modules call: marks, ranges, domains, registered messages, names.
 *
 * The program gets the answers of a tool. If another tool is attached too, the program gets that tool's answers.
 */
#include "nvtx/functions.h"

#include <stdbool.h>

#include "nvtx/calls.h"
#include "nvtx/texts.h"

nvtx_function *_Atomic nvtx_theirs[NVTX_PARTS][NVTX_FUNCTIONS];
#define THEIRS(part, number, type) ((type)atomic_load_explicit(&nvtx_theirs[part][number], memory_order_relaxed))

/* what: a struct said, built with `narrow` for wide messages. */
#define MARK(function, part, number, what, parameters, arguments) \
	static void function parameters \
	{ \
		char narrow[TEXTS_WIDE]; \
		struct said s = what; \
		void(*theirs) parameters = THEIRS(part, number, void(*) parameters); \
		(void)narrow; \
		if (theirs) \
			theirs arguments; \
		nvtx_mark(&s); \
	}
#define PUSH(function, part, number, what, parameters, arguments) \
	static int function parameters \
	{ \
		char narrow[TEXTS_WIDE]; \
		struct said s = what; \
		int(*theirs) parameters = THEIRS(part, number, int(*) parameters); \
		(void)narrow; \
		int level = nvtx_push(&s); \
		return theirs ? theirs arguments : level; \
	}
#define START(function, part, number, what, parameters, arguments) \
	static uint64_t function parameters \
	{ \
		char narrow[TEXTS_WIDE]; \
		struct said s = what; \
		uint64_t(*theirs) parameters = THEIRS(part, number, uint64_t(*) parameters); \
		(void)narrow; \
		return nvtx_start(&s, theirs ? theirs arguments : 0); \
	}

#define MESSAGE(text) ((struct said){.message = text})

#define IN_FORMS(KIND, kind, KINDS) \
	KIND(kind##_ex, NVTX_CORE, NVTX_##KINDS##_EX, nvtx_said_with(0, a, narrow), (const struct nvtx_attributes *a), (a)) \
	KIND(kind##_a, NVTX_CORE, NVTX_##KINDS##_A, MESSAGE(message), (const char *message), (message)) \
	KIND(kind##_w, NVTX_CORE, NVTX_##KINDS##_W, MESSAGE(texts_narrow(message, narrow)), (const wchar_t *message), \
	     (message)) \
	KIND(domain_##kind, NVTX_DOMAINS, NVTX_DOMAIN_##KINDS, nvtx_said_with(texts_domain(domain), a, narrow), \
	     (nvtx_handle domain, const struct nvtx_attributes *a), (domain, a))

IN_FORMS(MARK, mark, MARK)
IN_FORMS(PUSH, push, PUSH)
IN_FORMS(START, start, START)

#define WITH_PAYLOADS nvtx_said_of(texts_domain(domain), payloads, count)
#define PAYLOADS const struct nvtx_extended *payloads, size_t count

MARK(mark_payload, NVTX_PAYLOADS, NVTX_MARK_PAYLOAD, WITH_PAYLOADS, (nvtx_handle domain, PAYLOADS), (domain, payloads, count))
PUSH(push_payload, NVTX_PAYLOADS, NVTX_PUSH_PAYLOAD, WITH_PAYLOADS, (nvtx_handle domain, PAYLOADS), (domain, payloads, count))
START(start_payload, NVTX_PAYLOADS, NVTX_START_PAYLOAD, WITH_PAYLOADS, (nvtx_handle domain, PAYLOADS),
      (domain, payloads, count))

/* The other tool comes first: an epoch at the end of a range is after it. */
#define POP(function, part, number, what, parameters, arguments) \
	static int function parameters \
	{ \
		struct said s = what; \
		int(*theirs) parameters = THEIRS(part, number, int(*) parameters); \
		int level = theirs ? theirs arguments : 0, ours = nvtx_pop(&s); \
		return theirs ? level : ours; \
	}
#define END(function, part, number, what, parameters, arguments) \
	static void function parameters \
	{ \
		void(*theirs) parameters = THEIRS(part, number, void(*) parameters); \
		if (theirs) \
			theirs arguments; \
		nvtx_end(what, id); \
	}
#define DOMAIN(number) ((struct said){.domain = number})

POP(pop_default, NVTX_CORE, NVTX_POP, DOMAIN(0), (void), ())
POP(domain_pop, NVTX_DOMAINS, NVTX_DOMAIN_POP, DOMAIN(texts_domain(domain)), (nvtx_handle domain), (domain))
POP(pop_payload, NVTX_PAYLOADS, NVTX_POP_PAYLOAD, WITH_PAYLOADS, (nvtx_handle domain, PAYLOADS), (domain, payloads, count))
END(end_default, NVTX_CORE, NVTX_END, DOMAIN(0), (uint64_t id), (id))
END(domain_end, NVTX_DOMAINS, NVTX_DOMAIN_END, DOMAIN(texts_domain(domain)), (nvtx_handle domain, uint64_t id), (domain, id))
END(end_payload, NVTX_PAYLOADS, NVTX_END_PAYLOAD, WITH_PAYLOADS, (nvtx_handle domain, uint64_t id, PAYLOADS),
    (domain, id, payloads, count))

/* The program gets another tool's handle; records it as an alias. */
static nvtx_handle given(nvtx_handle ours, bool another, nvtx_handle theirs)
{
	if (another)
		texts_also(theirs, ours);
	return another ? theirs : ours;
}

static nvtx_handle create_a(const char *name)
{
	nvtx_handle (*theirs)(const char *) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_CREATE_A, nvtx_handle (*)(const char *));

	return given(texts_create_domain(name), theirs, theirs ? theirs(name) : 0);
}

static nvtx_handle create_w(const wchar_t *name)
{
	nvtx_handle (*theirs)(const wchar_t *) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_CREATE_W, nvtx_handle (*)(const wchar_t *));
	char narrow[TEXTS_WIDE];

	return given(texts_create_domain(texts_narrow(name, narrow)), theirs, theirs ? theirs(name) : 0);
}

static nvtx_handle register_a(nvtx_handle domain, const char *message)
{
	nvtx_handle (*theirs)(nvtx_handle, const char *) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_REGISTER_A,
								  nvtx_handle (*)(nvtx_handle, const char *));

	return given(texts_register(texts_domain(domain), message, nvtx_recording()), theirs,
		     theirs ? theirs(domain, message) : 0);
}

static nvtx_handle register_w(nvtx_handle domain, const wchar_t *message)
{
	nvtx_handle (*theirs)(nvtx_handle, const wchar_t *) = THEIRS(NVTX_DOMAINS, NVTX_DOMAIN_REGISTER_W,
								     nvtx_handle (*)(nvtx_handle, const wchar_t *));
	char narrow[TEXTS_WIDE];

	return given(texts_register(texts_domain(domain), texts_narrow(message, narrow), nvtx_recording()), theirs,
		     theirs ? theirs(domain, message) : 0);
}

#define NAMES(function, part, number, name, type, text, characters) \
	static void function(type what, const characters *given_name) \
	{ \
		char narrow[TEXTS_WIDE]; \
		void (*theirs)(type, const characters *) = THEIRS(part, number, void (*)(type, const characters *)); \
		(void)narrow; \
		if (theirs) \
			theirs(what, given_name); \
		name(what, text); \
	}

#define NAMES_IN_FORMS(function, part, number, name, type) \
	NAMES(function##_a, part, number##_A, name, type, given_name, char) \
	NAMES(function##_w, part, number##_W, name, type, texts_narrow(given_name, narrow), wchar_t)

NAMES_IN_FORMS(thread, NVTX_CORE, NVTX_NAME_THREAD, nvtx_name_thread, uint32_t)
NAMES_IN_FORMS(stream, NVTX_CUDA, NVTX_CUDA_STREAM, nvtx_name_stream, CUstream)
NAMES_IN_FORMS(runtime_stream, NVTX_CUDART, NVTX_CUDART_STREAM, nvtx_name_stream, CUstream)

#define OURS(function) ((nvtx_function *)(function))

nvtx_function *const nvtx_ours[NVTX_PARTS][NVTX_FUNCTIONS] = {
	[NVTX_PAYLOADS] =
		{
			[NVTX_MARK_PAYLOAD] = OURS(mark_payload),
			[NVTX_PUSH_PAYLOAD] = OURS(push_payload),
			[NVTX_POP_PAYLOAD] = OURS(pop_payload),
			[NVTX_START_PAYLOAD] = OURS(start_payload),
			[NVTX_END_PAYLOAD] = OURS(end_payload),
		},
	[NVTX_CORE] =
		{
			[NVTX_MARK_EX] = OURS(mark_ex),
			[NVTX_MARK_A] = OURS(mark_a),
			[NVTX_MARK_W] = OURS(mark_w),
			[NVTX_START_EX] = OURS(start_ex),
			[NVTX_START_A] = OURS(start_a),
			[NVTX_START_W] = OURS(start_w),
			[NVTX_PUSH_EX] = OURS(push_ex),
			[NVTX_PUSH_A] = OURS(push_a),
			[NVTX_PUSH_W] = OURS(push_w),
			[NVTX_END] = OURS(end_default),
			[NVTX_POP] = OURS(pop_default),
			[NVTX_NAME_THREAD_A] = OURS(thread_a),
			[NVTX_NAME_THREAD_W] = OURS(thread_w),
		},
	[NVTX_DOMAINS] =
		{
			[NVTX_DOMAIN_MARK] = OURS(domain_mark),
			[NVTX_DOMAIN_START] = OURS(domain_start),
			[NVTX_DOMAIN_PUSH] = OURS(domain_push),
			[NVTX_DOMAIN_END] = OURS(domain_end),
			[NVTX_DOMAIN_POP] = OURS(domain_pop),
			[NVTX_DOMAIN_REGISTER_A] = OURS(register_a),
			[NVTX_DOMAIN_REGISTER_W] = OURS(register_w),
			[NVTX_DOMAIN_CREATE_A] = OURS(create_a),
			[NVTX_DOMAIN_CREATE_W] = OURS(create_w),
		},
	[NVTX_CUDA] = {[NVTX_CUDA_STREAM_A] = OURS(stream_a), [NVTX_CUDA_STREAM_W] = OURS(stream_w)},
	[NVTX_CUDART] =
		{
			[NVTX_CUDART_STREAM_A] = OURS(runtime_stream_a),
			[NVTX_CUDART_STREAM_W] = OURS(runtime_stream_w),
		},
};
