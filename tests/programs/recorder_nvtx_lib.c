/* Another NVTX tool: prints the calls that it gets and returns values of its own. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*fn)(void);

struct event {
	char before[40];
	const char *message;
};

static char names[16][32];
static int count, level, refuse;

static int push(const char *message)
{
	printf("tool: push %s\n", message);
	return 100 + level++;
}

static int pop(void)
{
	printf("tool: pop\n");
	return 100 + --level;
}

static void mark(const char *message)
{
	printf("tool: mark %s\n", message);
}

static uint64_t start(const char *message)
{
	printf("tool: start %s\n", message);
	return 0xdeadbeef00000000u + (uint64_t)++level;
}

static void end(uint64_t id)
{
	printf("tool: end %llx\n", (unsigned long long)id);
}

static void *keep(const char *name)
{
	snprintf(names[count], sizeof(names[count]), "%s", name);
	return names[count++];
}

static void *create(const char *name)
{
	printf("tool: domain %s\n", name);
	return keep(name);
}

static void *reg(void *domain, const char *name)
{
	printf("tool: register %s in %s\n", name, domain ? (char *)domain : "none");
	return keep(name);
}

static int domain_push(void *domain, const struct event *e)
{
	printf("tool: push %s in %s\n", e->message, (char *)domain);
	return 200;
}

static int domain_pop(void *domain)
{
	printf("tool: pop in %s\n", (char *)domain);
	return 200;
}

static int pop_payload(void *domain, const void *payloads, size_t n)
{
	printf("tool: pop %zu payloads in %s\n", n, domain ? (char *)domain : "none");
	return payloads ? 300 : -1;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(void *extension)
{
	const struct {
		uint16_t version, size, module, compatible;
		size_t segments;
		struct {
			size_t number, count;
			fn *functions;
		} *segment;
	} *e = extension;

	printf("tool: extension %u\n", e->module);
	e->segment->functions[4] = (fn)pop_payload;
	return 1;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void *(*get)(uint32_t))
{
	const struct {
		size_t size;
		int (*table)(int, fn ***, unsigned *);
	} *callbacks = get(1);
	fn **table;
	unsigned n;

	refuse = getenv("TOOL_REFUSES") != NULL;
	printf("tool: %s\n", refuse ? "refuses" : "here");
	if (refuse)
		return 0;
	callbacks->table(1, &table, &n);
	*table[2] = (fn)mark;
	*table[5] = (fn)start;
	*table[7] = (fn)end;
	*table[9] = (fn)push;
	*table[11] = (fn)pop;
	if (callbacks->table(5, &table, &n)) {
		*table[4] = (fn)domain_push;
		*table[5] = (fn)domain_pop;
		if (n > 12) {
			*table[10] = (fn)reg;
			*table[12] = (fn)create;
		}
	}
	return 1;
}
