/*
 * Runs nvdisasm, and computes CUTracer's checksum of kernels from its text. See text_checksum.h for the invariant.
 */
#define _GNU_SOURCE
#include "delay/text_checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options/options.h"

#define MOST_SECONDS 60 /* of nvdisasm */
#define STACK 16384

struct child {
	int code, text; /* become nvdisasm's standard input and output */
	int status;
	char architecture[16];
	_Alignas(16) char stacks[2][STACK];
};

/*
 * The next two run in the program's memory while the thread that made them waits. Without cancellation points: those
 * of that thread are not for them.
 */
static int become_nvdisasm(void *of)
{
	struct child *c = of;
	char input[] = "/proc/self/fd/0";
	char *arguments[] = {options.nvdisasm, "-b", c->architecture, input, NULL}, *none[] = {NULL};
	struct rlimit limit = {MOST_SECONDS, MOST_SECONDS};

	setrlimit(RLIMIT_CPU, &limit);
	if (dup2(c->code, 0) == 0 && dup2(c->text, 1) == 1 && dup2(c->text, 2) == 2) {
		syscall(SYS_close_range, 3, UINT32_MAX, 0); /* a kernel before 5.9 leaves them open */
		syscall(SYS_execve, options.nvdisasm, arguments, none);
	}
	syscall(SYS_exit_group, 127);
	return 0;
}

/* A child that does not become another program ends without a signal. It waits for nvdisasm, whose end gives one. */
static int wait_for_nvdisasm(void *of)
{
	unsigned long by_default[4] = {0}; /* as the kernel has it: a program may ignore the signal, and then nobody can wait */
	struct child *c = of;

	syscall(SYS_rt_sigaction, SIGCHLD, by_default, NULL, sizeof(uint64_t));
	pid_t pid = clone(become_nvdisasm, c->stacks[1] + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, c);

	while (pid > 0 && syscall(SYS_wait4, pid, &c->status, 0, NULL) < 0 && errno == EINTR)
		;
	syscall(SYS_exit_group, 0);
	return 0;
}

/* Returns what nvdisasm says of some code; NULL: it failed, or can't be run. */
static FILE *disassemble(const void *code, size_t size, unsigned architecture)
{
	struct child *c = calloc(1, sizeof(*c));
	int image = memfd_create("code", MFD_CLOEXEC), text = memfd_create("text", MFD_CLOEXEC);
	sigset_t all, before;
	pid_t pid = -1;

	if (c && image > 2 && text > 2 && write(image, code, size) == (ssize_t)size) {
		*c = (struct child){.code = image, .text = text, .status = -1};
		snprintf(c->architecture, sizeof(c->architecture), "SM%u", architecture);
		sigfillset(&all); /* no handler of the program runs in the children */
		pthread_sigmask(SIG_SETMASK, &all, &before);
		pid = clone(wait_for_nvdisasm, c->stacks[0] + STACK, CLONE_VM | CLONE_VFORK, c);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		while (pid > 0 && waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
			;
	}
	bool good = pid > 0 && c->status == 0;
	free(c);
	close(image);
	FILE *said = good && !lseek(text, 0, SEEK_SET) ? fdopen(text, "r") : NULL;
	if (!said)
		close(text);
	return said;
}

static uint64_t added(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * 0x100000001b3u; /* FNV-1a */
}

static uint64_t with_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = added(hash, (uint64_t)*text); /* CUTracer adds a char with its sign, and an offset at once */
	return hash;
}

/* From an instruction's line it takes the text, as in "@P0 EXIT ;". NULL: another line. */
static const char *instruction(char *line, uint64_t *offset)
{
	char *at = line + strspn(line, " \t"), *end = at;

	if (!strncmp(at, "/*", 2))
		*offset = strtoull(at + 2, &end, 16);
	if (end == at || strncmp(end, "*/", 2))
		return NULL;
	at = end + 2 + strspn(end + 2, " \t");
	at[strcspn(at, "\n")] = 0;
	return at;
}

struct text_checksum text_checksum(const struct cubin *c, const struct cubin_kernel *k)
{
	struct text_checksum sum = {.asked = true, .padded = with_text(0xcbf29ce484222325u, k->name)};
	size_t count = 0, room = 0;
	char *line = NULL;
	uint64_t offset;
	FILE *text = *options.nvdisasm ? disassemble(c->bytes + k->code, k->size, c->architecture) : NULL;

	while (text && getline(&line, &room, text) > 0) {
		const char *of = instruction(line, &offset);
		if (!of)
			continue;
		sum.padded = added(with_text(sum.padded, of), offset);
		if (strncmp(of, "NOP", 3) != 0)
			sum.bare = sum.padded;
		count++;
	}
	if (text)
		fclose(text);
	free(line);
	sum.known = count && count == k->size / SASS_INSTRUCTION;
	return sum;
}
