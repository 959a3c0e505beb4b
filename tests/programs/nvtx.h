/*
 * What a module does that uses NVTX: it looks for a tool at its first call, and from then on calls
 * what the tool put into its tables, or nothing. NVIDIA's header comes with the CUDA toolkit only;
 * this says the same to a tool.
 *
 * NVTX_MODULE(name, core, domains) makes a module whose tables have so many entries.
 */
#ifndef TEST_NVTX_H
#define TEST_NVTX_H

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { CORE = 1, CUDA = 2, CUDART = 4, CORE2 = 5, PARTS = 7, ENTRIES = 16 };
enum {
	MARK_EX = 1, MARK_A, MARK_W, START_EX, START_A, START_W, END, PUSH_EX, PUSH_A, PUSH_W, POP,
	NAME_THREAD_A = 14,
};
enum {
	DOMAIN_MARK = 1, DOMAIN_START, DOMAIN_END, DOMAIN_PUSH, DOMAIN_POP, REGISTER_A = 10, REGISTER_W, CREATE_A,
	CREATE_W, DESTROY,
};
enum { PUSH_PAYLOAD = 3, POP_PAYLOAD, START_PAYLOAD, END_PAYLOAD, PAYLOADS = 63 }; /* of the extension, from 0 */
enum { NAME_CU_STREAM_A = 5, NAME_CUDA_STREAM_A = 3 };

typedef void (*nvtx_fn)(void);

struct nvtx_event {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	union {
		uint64_t u64;
		double f64;
		int32_t i32;
	} payload;
	int32_t message_type;
	union {
		const char *ascii;
		const wchar_t *wide;
		void *registered;
	} message;
};

struct nvtx_payload {
	uint64_t schema;
	size_t size;
	const void *bytes;
};

struct nvtx_module {
	pthread_once_t once;
	unsigned sizes[PARTS];
	nvtx_fn functions[PARTS][ENTRIES];
	nvtx_fn *tables[PARTS][ENTRIES + 1];
	const void *(*get)(uint32_t);
	nvtx_fn payloads[PAYLOADS]; /* the functions of the extension */
};

static void nvtx_nobody(void)
{
	abort(); /* a function that no tool took is never called */
}

static int nvtx_table(struct nvtx_module *m, int part, nvtx_fn ***table, unsigned *entries)
{
	if (part <= 0 || part >= PARTS || !m->sizes[part])
		return 0;
	*table = m->tables[part];
	*entries = m->sizes[part];
	return 1;
}

/* As the header of the extension: a tool that takes nothing is found once more, by another name. */
static void nvtx_find_extension_tool(struct nvtx_module *m, void *library)
{
	struct {
		size_t number, count;
		nvtx_fn *functions;
	} segment = {0, PAYLOADS, m->payloads};
	struct {
		uint16_t version, size, module, compatible;
		size_t segments;
		void *segment;
		void *get;
		const void *types;
	} extension = {3, sizeof(extension), 2, 0x0103, 1, &segment, NULL, NULL};
	int (*initialize)(void *) = NULL;

	if (library)
		*(void **)&initialize = dlsym(library, "InitializeInjectionNvtxExtension");
	if (!initialize || !initialize(&extension))
		memset(m->payloads, 0, sizeof(m->payloads));
}

static void nvtx_find_tool(struct nvtx_module *m)
{
	const char *path = getenv("NVTX_INJECTION64_PATH");
	void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
	int (*initialize)(const void *(*)(uint32_t)) = NULL;
	int found;

	for (int part = 1; part < PARTS; part++)
		for (int i = 1; i < ENTRIES; i++) {
			m->functions[part][i] = nvtx_nobody;
			m->tables[part][i] = &m->functions[part][i];
		}
	if (library)
		*(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
	found = initialize && initialize(m->get);
	for (int part = 1; part < PARTS; part++)
		for (int i = 1; i < ENTRIES; i++)
			if (!found || m->functions[part][i] == nvtx_nobody)
				m->functions[part][i] = NULL;
	nvtx_find_extension_tool(m, library);
}

#define NVTX_MODULE(name, core, domains) \
	static const void *name##_get(uint32_t which); \
	static struct nvtx_module name = { \
		.once = PTHREAD_ONCE_INIT, \
		.sizes = {[CORE] = core, [CUDA] = domains ? 9 : 0, [CUDART] = domains ? 7 : 0, [CORE2] = domains}, \
		.get = name##_get, \
	}; \
	static int name##_table(int part, nvtx_fn ***table, unsigned *entries) \
	{ \
		return nvtx_table(&name, part, table, entries); \
	} \
	static const void *name##_get(uint32_t which) \
	{ \
		static const struct { \
			size_t size; \
			int (*table)(int, nvtx_fn ***, unsigned *); \
		} callbacks = {sizeof(callbacks), name##_table}; \
		return which == 1 ? &callbacks : NULL; \
	} \
	static void name##_find_tool(void) \
	{ \
		nvtx_find_tool(&name); \
	} \
	static struct nvtx_module *use_##name(void) \
	{ \
		pthread_once(&name.once, name##_find_tool); \
		return &name; \
	}

#define NVTX_CALL(module, part, number, type, arguments, otherwise) \
	((module)->functions[part][number] ? ((type)(module)->functions[part][number])arguments : (otherwise))

#define NVTX_EXTENSION_CALL(module, number, type, arguments, otherwise) \
	((module)->payloads[number] ? ((type)(module)->payloads[number])arguments : (otherwise))

#endif
