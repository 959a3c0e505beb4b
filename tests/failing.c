/*
 * A library to preload beside the recorder, in which calls of the recorder fail, and of nobody
 * else: FAILING=CALL:N:ERRNO lets the Nth call of that name and all after it fail with that
 * number; CALL:N-M:ERRNO those up to the Mth. With -1 the process is killed instead. With 0 they
 * succeed, but take two seconds, or what FAILING_PAUSE_US says, which others that fail take, too.
 * With FAILING_UNTIL=FILE they take until there is that file. Several are separated by commas.
 * With FAILING_AFTER=FILE, writes count from the first to this file on. Its header is written
 * before it has this name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum call { MKDIR, OPEN, PWRITE, FALLOCATE, FTRUNCATE, RENAME, MMAP, MADVISE, THREAD, MALLOC, CALLOC, REALLOC, STRDUP, STRNDUP, ASPRINTF, CALLS };

static const char *const names[CALLS] = {
	"mkdir", "open", "pwrite", "fallocate", "ftruncate", "rename", "mmap", "madvise", "pthread_create", "malloc",
	"calloc", "realloc", "strdup", "strndup", "asprintf",
};
static struct { int from, to, error, count; } failing[CALLS];
static unsigned pause_us; /* of calls that fail; 0: of those that are only slow two seconds */
static const char *until; /* the file that calls that fail wait for, if any */
static bool counts; /* only */
static const char *after; /* the name of the file; NULL once writes count */
static uintptr_t begin, end;

static int find_recorder(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	if (!strstr(info->dlpi_name, "libttshim"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		if (!begin)
			begin = from;
		end = from + info->dlpi_phdr[i].p_memsz;
	}
	return 1;
}

static void print_counts(void)
{
	for (int i = 0; i < CALLS; i++)
		if (failing[i].count)
			fprintf(stderr, "%s %d\n", names[i], failing[i].count);
}

__attribute__((constructor)) static void read_settings(void)
{
	const char *at = getenv("FAILING");

	dl_iterate_phdr(find_recorder, NULL);
	if (at && !strcmp(at, "count")) {
		counts = true;
		atexit(print_counts);
		return;
	}
	for (; at && *at; at += strcspn(at, ","), at += *at == ',') {
		char name[32];
		int from, to, error, call = 0;
		if (sscanf(at, "%31[a-z_]:%d-%d:%d", name, &from, &to, &error) != 4) {
			if (sscanf(at, "%31[a-z_]:%d:%d", name, &from, &error) != 3)
				abort();
			to = 1 << 30;
		}
		while (call < CALLS && strcmp(names[call], name))
			call++;
		if (call == CALLS)
			abort();
		failing[call].from = from;
		failing[call].to = to;
		failing[call].error = error;
	}
	if (getenv("FAILING_PAUSE_US"))
		pause_us = (unsigned)atoi(getenv("FAILING_PAUSE_US"));
	after = getenv("FAILING_AFTER");
	until = getenv("FAILING_UNTIL");
}

static bool counted(int fd)
{
	char link[32], path[4096];

	if (!after)
		return true;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t size = readlink(link, path, sizeof(path) - 1);
	path[size > 0 ? size : 0] = 0;
	const char *name = strrchr(path, '/');
	if (!name || strcmp(name + 1, after))
		return false;
	after = NULL;
	return true;
}

static bool fails(enum call call, void *caller)
{
	if ((!failing[call].from && !counts) || (uintptr_t)caller < begin || (uintptr_t)caller >= end)
		return false;
	int n = __atomic_add_fetch(&failing[call].count, 1, __ATOMIC_RELAXED);
	if (counts || n < failing[call].from || n > failing[call].to)
		return false;
	if (failing[call].error < 0)
		kill(getpid(), SIGKILL);
	if (until)
		while (access(until, F_OK))
			usleep(5000);
	else if (pause_us || !failing[call].error)
		usleep(pause_us ? pause_us : 2000000);
	errno = failing[call].error;
	return errno != 0;
}

#define FAILS(call) fails(call, __builtin_return_address(0))
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int mkdir(const char *path, mode_t mode)
{
	return FAILS(MKDIR) ? -1 : REAL(mkdir)(path, mode);
}

int open(const char *path, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	return FAILS(OPEN) ? -1 : REAL(open)(path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	return FAILS(OPEN) ? -1 : REAL(openat)(directory, path, flags, mode);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
	return counted(fd) && FAILS(PWRITE) ? -1 : REAL(pwrite)(fd, data, size, at);
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
	return FAILS(FALLOCATE) ? -1 : REAL(fallocate)(fd, mode, at, size);
}

int ftruncate(int fd, off_t size)
{
	return FAILS(FTRUNCATE) ? -1 : REAL(ftruncate)(fd, size);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
	return FAILS(RENAME) ? -1 : REAL(renameat)(from_folder, from, to_folder, to);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	return FAILS(MMAP) ? MAP_FAILED : REAL(mmap)(at, size, protection, flags, fd, offset);
}

int madvise(void *at, size_t size, int advice)
{
	return FAILS(MADVISE) ? -1 : REAL(madvise)(at, size, advice);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	return FAILS(THREAD) ? errno : REAL(pthread_create)(thread, attributes, run, argument);
}

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);

void *malloc(size_t size)
{
	return FAILS(MALLOC) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return FAILS(CALLOC) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
	return FAILS(REALLOC) ? NULL : __libc_realloc(p, size);
}

char *strdup(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = FAILS(STRDUP) ? NULL : __libc_malloc(size);

	return copy ? memcpy(copy, text, size) : NULL;
}

char *strndup(const char *text, size_t most)
{
	size_t size = strnlen(text, most);
	char *copy = FAILS(STRNDUP) ? NULL : __libc_malloc(size + 1);

	if (!copy)
		return NULL;
	copy[size] = 0;
	return memcpy(copy, text, size);
}

int asprintf(char **text, const char *format, ...)
{
	va_list args;

	if (FAILS(ASPRINTF))
		return -1;
	va_start(args, format);
	int length = vasprintf(text, format, args);
	va_end(args);
	return length;
}
