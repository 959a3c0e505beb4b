/*
 * Injection by the driver: it loads the recorder at cuInit (CUDA_INJECTION64_PATH). This serves programs that
 * LD_PRELOAD does not reach, because a launcher dropped it or the program is static.
 *
 * At that moment the program may already have the driver's addresses. Every exported call of the driver is a stub
 * of one form that calls its implementation through its own pointer. These pointers are replaced, so calls by
 * address reach the wrappers. If any stub differs from this form in a byte, nothing is replaced.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "entry/entry.h"

#ifdef __x86_64__

/* push rbp; mov rbp,rsp; push r12; sub rsp,8; cmp dword [rip+?],0x321cba00 (the driver is gone); je */
static const short stub_form[] = {0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x48, 0x83, 0xec, 0x08,
				  0x81, 0x3d, -1,   -1,   -1,   -1,   0x00, 0xba, 0x1c, 0x32};
#define ARGUMENTS 48 /* most bytes that pass arguments, before the call */

struct bounds {
	uintptr_t code, code_end, data, data_end;
	const char *path;
};

static int find_bounds(struct dl_phdr_info *info, size_t size, void *out)
{
	struct bounds *b = out;
	(void)size;

	if (strcmp(info->dlpi_name, b->path))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + h->p_vaddr;
		if (h->p_type == PT_LOAD && h->p_flags & PF_X) {
			b->code = from;
			b->code_end = from + h->p_memsz;
		} else if (h->p_type == PT_LOAD && h->p_flags & PF_W) {
			b->data = from;
			b->data_end = from + h->p_memsz;
		}
	}
	return 1;
}

/* The pointer through which a stub calls, or NULL if it has another form. */
static void **pointer_of(const struct bounds *b, const unsigned char *stub)
{
	const size_t form = sizeof(stub_form) / sizeof(*stub_form);
	const unsigned char *at = stub + form;
	int32_t offset;

	if ((uintptr_t)stub < b->code || (uintptr_t)stub + 96 > b->code_end)
		return NULL;
	for (size_t i = 0; i < form; i++)
		if (stub_form[i] >= 0 && stub[i] != stub_form[i])
			return NULL;
	if (at[0] == 0x74)
		at += 2;
	else if (at[0] == 0x0f && at[1] == 0x84)
		at += 6;
	else
		return NULL;
	for (const unsigned char *end = at + ARGUMENTS; at[0] != 0xff || at[1] != 0x15; at++)
		if (at == end)
			return NULL;
	memcpy(&offset, at + 2, sizeof(offset));
	uintptr_t pointer = (uintptr_t)at + 6 + (uintptr_t)(intptr_t)offset;
	if (pointer < b->data || pointer + sizeof(void *) > b->data_end || pointer % sizeof(void *))
		return NULL;
	uintptr_t target = *(uintptr_t *)pointer;
	return target >= b->code && target < b->code_end ? (void **)pointer : NULL;
}

static bool make_writable(void **pointer)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	return !mprotect((void *)((uintptr_t)pointer & ~(page - 1)), page, PROT_READ | PROT_WRITE);
}

/* The first call in the table with the same address. */
static unsigned first_of(unsigned call)
{
	unsigned i = 0;

	while (driver_address(i) != driver_address(call))
		i++;
	return i;
}

static const char *exchange(void *driver)
{
	void **pointers[CALL_COUNT] = {0};
	struct bounds b = {0};
	struct link_map *map;

	if (dlinfo(driver, RTLD_DI_LINKMAP, &map))
		return "the dynamic loader does not know the driver";
	b.path = map->l_name;
	dl_iterate_phdr(find_bounds, &b);
	for (unsigned i = 0; i < CALL_COUNT; i++) {
		const unsigned char *stub = driver_address(i);
		if (!stub || first_of(i) != i)
			continue;
		pointers[i] = pointer_of(&b, stub);
		if (!pointers[i] || !make_writable(pointers[i]))
			return "the entry points of this driver have an unknown form";
		for (unsigned k = 0; k < i; k++)
			if (pointers[k] == pointers[i])
				return "entry points of this driver share a pointer";
	}
	for (unsigned i = CALL_COUNT; i-- > 0;) /* aliases before the calls that they are aliases of */
		if (driver_address(i))
			driver_exchange(i, pointers[first_of(i)], pointers[i] != NULL);
	return NULL;
}

#else

static const char *exchange(void *driver)
{
	(void)driver;
	return "it works on x86-64 only";
}

#endif

const char *entry_inject(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	return driver && driver_resolve() ? exchange(driver) : "libcuda.so.1 is not loaded";
}
