/*
 * Other sizes, compiler options and code: the command line, and what makes PTX of CUDA C++ (NVRTC) and of LLVM IR
 * (NVVM). Both compilers are libraries of functions with the same shape, which are loaded when they are needed.
 */
#include "change.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USAGE \
	"usage: %s [--times K] [--grid X[xY[xZ]]] [--block X[xY[xZ]]] [--shared BYTES]\n" \
	"       [--launch-bounds T[,B]] [--maxregs R] [--code FILE]\n" \
	"FILE: .ptx, .cubin, .fatbin, .cu (needs NVRTC), .ll or .bc (LLVM IR; needs NVVM)\n"

/* ---- the command line ---- */

static int read_numbers(const char *text, char sign, int most, unsigned int *to)
{
	int count = 0;
	char *end;

	for (;; text = end + 1) {
		if (!isdigit((unsigned char)*text) || count == most)
			return 0;
		to[count++] = strtoul(text, &end, 10);
		if (!*end)
			return count;
		if (*end != sign)
			return 0;
	}
}

static int read_size(const char *text, unsigned int *to)
{
	to[0] = to[1] = to[2] = 1;
	return read_numbers(text, 'x', 3, to) && to[0] && to[1] && to[2];
}

static int read_option(struct change *to, const char *name, const char *value)
{
	unsigned int numbers[2] = {0, 0};
	int good = 1;

	if (!strcmp(name, "--grid"))
		return read_size(value, to->grid);
	if (!strcmp(name, "--block"))
		return read_size(value, to->block);
	if (!strcmp(name, "--code"))
		return (to->code = value) != NULL;
	if (!strcmp(name, "--launch-bounds"))
		good = read_numbers(value, ',', 2, numbers), to->threads = numbers[0], to->blocks = numbers[1];
	else if (!read_numbers(value, 0, 1, numbers))
		return 0;
	else if (!strcmp(name, "--times"))
		to->times = numbers[0];
	else if (!strcmp(name, "--shared"))
		return (to->shared = numbers[0]) >= 0;
	else if (!strcmp(name, "--maxregs"))
		to->registers = numbers[0];
	else
		return 0;
	return good && numbers[0];
}

struct change read_change(int argc, char **argv)
{
	struct change change = {.shared = -1};
	int i;

	for (i = 1; i < argc; i += 2)
		if (i + 1 == argc || !read_option(&change, argv[i], argv[i + 1])) {
			fprintf(stderr, USAGE, argv[0]);
			exit(2);
		}
	if (change.code && change.code[0] != '/' && !(change.code = realpath(change.code, NULL)))
		fail("--code", "there is no such file");
	return change;
}

/* ---- compilers ---- */

struct compiler {
	const char *prefix, *libraries[5], *result;
};

static const struct compiler nvrtc = {"nvrtc", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
	"/usr/local/cuda/lib64/libnvrtc.so"}, "PTX"};
static const struct compiler nvvm = {"nvvm", {"libnvvm.so.4", "libnvvm.so",
	"/usr/local/cuda/nvvm/lib64/libnvvm.so", "/usr/local/cuda/lib64/libnvvm.so"}, "CompiledResult"};

static void *call_of(const struct compiler *c, void *library, const char *name, const char *more)
{
	char full[96];
	void *call;

	snprintf(full, sizeof full, "%s%s%s", c->prefix, name, more);
	call = dlsym(library, full);
	if (!call)
		fail(full, "is not in the library");
	return call;
}

static char *text_of(const struct compiler *c, void *library, void *program, const char *what)
{
	char name[64];
	size_t size = 0;
	char *text;
	int (*get_size)(void *, size_t *), (*get)(void *, char *);

	snprintf(name, sizeof name, "Get%s", what);
	*(void **)&get_size = call_of(c, library, name, "Size");
	*(void **)&get = call_of(c, library, name, "");
	if (get_size(program, &size))
		fail(name, "the compiler has no answer");
	text = allocate(size + 1);
	if (get(program, text))
		fail(name, "the compiler has no answer");
	return text;
}

static void *compile(const struct compiler *c, const char *file, char *source, size_t size, int architecture)
{
	int (*create)(void **, ...), (*add)(void *, const char *, size_t, const char *);
	int (*run)(void *, int, const char **);
	void *library = NULL, *program;
	char option[64], include[3][4200];
	const char *options[] = {option, include[0], include[1], include[2]};
	const char *slash = strrchr(file, '/'), *home = getenv("CUDA_HOME");
	int i, bad;

	for (i = 0; c->libraries[i] && !library; i++)
		library = dlopen(c->libraries[i], RTLD_NOW);
	if (!library)
		fail(c->libraries[0], "was not found; set LD_LIBRARY_PATH to its folder");
	*(void **)&create = call_of(c, library, "CreateProgram", "");
	*(void **)&run = call_of(c, library, "CompileProgram", "");
	if (c == &nvvm) {
		*(void **)&add = call_of(c, library, "AddModuleToProgram", "");
		bad = create(&program) || add(program, source, size, file);
		snprintf(option, sizeof option, "-arch=compute_%d", architecture);
	} else {
		bad = create(&program, source, file, 0, NULL, NULL);
		snprintf(option, sizeof option, "--gpu-architecture=compute_%d", architecture);
		snprintf(include[0], sizeof *include, "-I%.*s", slash ? (int)(slash - file) : 1, slash ? file : ".");
		snprintf(include[1], sizeof *include, "-I%s/include", home ? home : "/usr/local/cuda");
		snprintf(include[2], sizeof *include, "-I%s/include/cccl", home ? home : "/usr/local/cuda");
	}
	if (bad || run(program, c == &nvvm ? 1 : 4, options))
		fail(file, bad ? "the compiler does not read it" : text_of(c, library, program, "ProgramLog"));
	return text_of(c, library, program, c->result);
}

/* ---- launch bounds ---- */

static const char *end_of_word(const char *at)
{
	while (isalnum((unsigned char)*at) || *at == '_' || *at == '$')
		at++;
	return at;
}

/* The opening brace of a kernel in PTX without comments before it in its head; NULL: there is none. */
static char *body_of(char *ptx, const char *kernel)
{
	char *at = ptx, *name;

	while ((at = strstr(at, ".entry"))) {
		for (at += 6, name = at; isspace((unsigned char)*name);)
			name++;
		at = strpbrk(name, "{;");
		if (!at)
			return NULL;
		if ((size_t)(end_of_word(name) - name) == strlen(kernel) && !strncmp(name, kernel, strlen(kernel)) &&
			*at == '{')
			return at;
	}
	return NULL;
}

static void blank(char *from, const char *until, const char *directive)
{
	char *at = strstr(from, directive);

	if (!at || at >= until)
		return;
	memset(at, ' ', strlen(directive));
	for (at += strlen(directive); at < until && (isdigit((unsigned char)*at) || strchr(" ,\t", *at)); at++)
		*at = ' ';
}

static char *with_bounds(char *ptx, const char *kernel, const struct change *change)
{
	char *brace = body_of(ptx, kernel), *head, *out;
	size_t before, size = strlen(ptx) + 128;
	int n;

	if (!brace)
		fail(kernel, "is not in the PTX");
	for (head = brace; head > ptx && *head != ')'; head--)
		;
	blank(head, brace, ".maxntid");
	blank(head, brace, ".minnctapersm");
	blank(head, brace, ".maxnreg");
	out = allocate(size);
	before = brace - ptx;
	memcpy(out, ptx, before);
	n = snprintf(out + before, size - before, "\n.maxntid %d, 1, 1\n", change->threads);
	if (change->blocks)
		n += snprintf(out + before + n, size - before - n, ".minnctapersm %d\n", change->blocks);
	strcpy(out + before + n, brace);
	return out;
}

/* ---- code ---- */

void *read_code(const struct change *change, const char *image, const char *ptx, const char *kernel, int architecture)
{
	int compiles = change->threads || change->registers;
	const char *file = change->code ? change->code : compiles ? ptx : image;
	const char *suffix = file ? strrchr(file, '.') : NULL;
	size_t size;
	char *code;

	if (!file)
		fail("--launch-bounds and --maxregs", "the recorded code has no PTX; give other code with --code");
	if (!suffix)
		fail(file, "expected .ptx, .cubin, .fatbin, .cu, .ll or .bc");
	code = read_file(file, &size);
	if (!strcmp(suffix, ".cu"))
		code = compile(&nvrtc, file, code, size, architecture);
	else if (!strcmp(suffix, ".ll") || !strcmp(suffix, ".bc"))
		code = compile(&nvvm, file, code, size, architecture);
	else if (compiles && strcmp(suffix, ".ptx"))
		fail(file, "is machine code: --launch-bounds and --maxregs need PTX");
	return change->threads ? with_bounds(code, kernel, change) : code;
}
