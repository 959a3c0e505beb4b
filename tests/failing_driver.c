/*
 * A library to preload beside the recorder, in which calls of the driver fail that the recorder
 * makes for itself, and none that it passes on for the program: FAILING_DRIVER=CALL:N:RESULT lets
 * its Nth call of that symbol and all after it fail with that result; CALL:N-M:RESULT those up to
 * the Mth. A result of 9999 is none: such calls never return; with 9998 they work, but take a
 * second. FAILING_DRIVER=count prints, at the end, how often it made each.
 *
 * The recorder looks the driver's calls up through our dlsym, which gives it a stub for each: the
 * stub goes on to the driver with the registers and the stack as they were, or returns the result.
 * Whose call it is shows in the caller: FAILING_WRAPPERS=BEGIN-END,… says where in the recorder
 * the wrappers' code lies.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../interpose/driver/call_table.h"

#define HANGS 9999
#define SLOW 9998

enum call {
#define X(symbol) CALL_##symbol,
	HOOK_TABLE(X) CALL_TABLE(X)
#undef X
	CALL_COUNT
};

static const char *const names[CALL_COUNT] = {
#define X(symbol) #symbol,
	HOOK_TABLE(X) CALL_TABLE(X)
#undef X
};

__attribute__((visibility("hidden"))) void *failing_real[CALL_COUNT];
static unsigned counts[CALL_COUNT];
static unsigned failing = CALL_COUNT, from, to, result;
static uintptr_t base, begin, end;
static struct { uintptr_t begin, end; } wrappers[512];
static unsigned wrapper_count;

__attribute__((visibility("hidden"), used)) unsigned failing_decide(unsigned call, uintptr_t caller);

unsigned failing_decide(unsigned call, uintptr_t caller)
{
	if (caller < begin || caller >= end)
		return 0;
	for (unsigned i = 0; i < wrapper_count; i++)
		if (caller - base >= wrappers[i].begin && caller - base < wrappers[i].end)
			return 0;
	unsigned n = __atomic_add_fetch(&counts[call], 1, __ATOMIC_RELAXED);
	bool fails = call == failing && n >= from && n <= to;
	while (fails && result == HANGS)
		pause();
	if (fails && result == SLOW)
		sleep(1);
	return fails && result != SLOW ? result : 0;
}

/* No argument of these calls is in a floating-point register. */
#define X(symbol) \
	extern void stub_##symbol(void) __attribute__((visibility("hidden"))); \
	static void __attribute__((naked, used)) make_##symbol(void) \
	{ \
		__asm__("stub_" #symbol ":\n" \
			"push %%rdi; push %%rsi; push %%rdx; push %%rcx; push %%r8; push %%r9; sub $8, %%rsp\n" \
			"mov %0, %%edi; mov 56(%%rsp), %%rsi; call failing_decide\n" \
			"add $8, %%rsp; pop %%r9; pop %%r8; pop %%rcx; pop %%rdx; pop %%rsi; pop %%rdi\n" \
			"test %%eax, %%eax; jnz 1f; jmp *failing_real+8*%c0(%%rip)\n" \
			"1: ret\n" : : "i"(CALL_##symbol)); \
	}
HOOK_TABLE(X) CALL_TABLE(X)
#undef X

static void *const stubs[CALL_COUNT] = {
#define X(symbol) (void *)stub_##symbol,
	HOOK_TABLE(X) CALL_TABLE(X)
#undef X
};

typedef void *dlsym_fn(void *, const char *);

static dlsym_fn *libc_dlsym(void)
{
	dlsym_fn *f = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");

	return f ? f : (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
}

static int find_recorder(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	if (!strstr(info->dlpi_name, "libttshim"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
		if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_X))
			continue;
		begin = at;
		end = at + info->dlpi_phdr[i].p_memsz;
	}
	base = info->dlpi_addr;
	return 1;
}

static void read_wrappers(const char *text)
{
	for (; text && *text; text += strcspn(text, ","), text += *text == ',') {
		unsigned n = wrapper_count++;
		if (n == 512 || sscanf(text, "%lx-%lx", &wrappers[n].begin, &wrappers[n].end) != 2)
			abort();
	}
}

static void print_counts(void)
{
	for (unsigned i = 0; i < CALL_COUNT; i++)
		if (counts[i])
			fprintf(stderr, "%s %u\n", names[i], counts[i]);
}

__attribute__((constructor)) static void read_settings(void)
{
	const char *text = getenv("FAILING_DRIVER");
	char name[64];

	if (!dl_iterate_phdr(find_recorder, NULL))
		return;
	read_wrappers(getenv("FAILING_WRAPPERS"));
	if (!text || !strcmp(text, "count")) {
		atexit(print_counts);
		return;
	}
	if (sscanf(text, "%63[A-Za-z0-9_]:%u-%u:%u", name, &from, &to, &result) != 4) {
		if (sscanf(text, "%63[A-Za-z0-9_]:%u:%u", name, &from, &result) != 3)
			abort();
		to = UINT32_MAX;
	}
	while (failing-- && strcmp(names[failing], name))
		continue;
	if (failing >= CALL_COUNT)
		abort();
}

static void *stub_for(const char *name, void *found)
{
	for (unsigned i = 0; found && i < CALL_COUNT; i++)
		if (!strcmp(names[i], name)) {
			failing_real[i] = found;
			return stubs[i];
		}
	return found;
}

/* For anyone else a tail call: RTLD_NEXT is meant from there. */
__attribute__((optimize("optimize-sibling-calls"))) void *dlsym(void *restrict handle, const char *restrict name)
{
	uintptr_t caller = (uintptr_t)__builtin_return_address(0);
	dlsym_fn *look_up = libc_dlsym();

	if (caller >= begin && caller < end)
		return stub_for(name, look_up(handle, name));
	return look_up(handle, name);
}
