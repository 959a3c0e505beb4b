/*
 * Device memory for tests of the PTX interpreter: allocations of exact size at addresses that
 * are no host addresses, with gaps between them.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim/ptx/ptx.h"

#define MOST 4096

struct harness {
	uint64_t next;
	size_t count, requests;
	struct {
		uint64_t address;
		size_t size;
		bool readonly;
		uint8_t *host;
	} block[MOST];
};

struct harness *harness_new(void)
{
	struct harness *h = calloc(1, sizeof(*h));

	h->next = 0x700000000000;
	return h;
}

void harness_free(struct harness *h)
{
	for (size_t i = 0; i < h->count; i++)
		free(h->block[i].host);
	free(h);
}

uint64_t harness_alloc(struct harness *h, size_t size, bool readonly)
{
	size_t i = h->count++;

	if (i >= MOST)
		abort();
	h->block[i].address = h->next;
	h->block[i].size = size;
	h->block[i].readonly = readonly;
	h->block[i].host = aligned_alloc(256, (size + 511) / 256 * 256);
	memset(h->block[i].host, 0, (size + 511) / 256 * 256);
	h->next += (size + 1023) / 512 * 512;
	return h->block[i].address;
}

void *harness_translate(void *user, uint64_t address, size_t size, bool write)
{
	struct harness *h = user;

	h->requests++;
	for (size_t i = 0; i < h->count; i++) {
		uint64_t offset = address - h->block[i].address;
		if (address >= h->block[i].address && offset <= h->block[i].size && size <= h->block[i].size - offset)
			return write && h->block[i].readonly ? NULL : h->block[i].host + offset;
	}
	return NULL;
}

uint64_t harness_place(void *user, const ptx_global *g)
{
	uint64_t address = harness_alloc(user, g->size, g->constant);
	struct harness *h = user;

	if (g->init)
		memcpy(h->block[h->count - 1].host, g->init, g->size);
	return address;
}

struct together {
	const ptx_function *function;
	ptx_launch_config config;
	ptx_status status;
};

static void *launch(void *argument)
{
	struct together *t = argument;
	char error[512];

	t->status = ptx_launch(t->function, &t->config, error, sizeof(error));
	return NULL;
}

/* The same launch twice at once, from two threads; the first status that is no PTX_OK. */
ptx_status harness_launch_twice(const ptx_function *f, const ptx_launch_config *config)
{
	struct together t[2] = {{f, *config, PTX_OK}, {f, *config, PTX_OK}};
	pthread_t thread[2];

	for (int i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, launch, &t[i]))
			abort();
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	return t[0].status ? t[0].status : t[1].status;
}
