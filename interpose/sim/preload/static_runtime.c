/*
 * NVIDIA's static runtime in a program, replaced by the simulator's: each of its functions becomes a jump.
 *
 * NVIDIA's runtime works with NVIDIA's driver only. A program that contains it asks nobody for the runtime's calls, so its
 * code is changed before its first statement. A program without it is left alone, and so is one without a table of
 * symbols. The file is preloaded; it needs no other library.
 *
 * Invariant: a jump fits into the space of its function. A call that the simulator's runtime lacks ends the program with a
 * line that names it, as the loader ends a program with a shared runtime.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __x86_64__

#define JUMP 14     /* bytes */
#define ALIGNMENT 16 /* of the functions of the runtime */
#define STUB 32
#define STUBS_MOST 1024

struct file {
	const uint8_t *bytes;
	size_t size;
	const Elf64_Sym *symbols;
	size_t count;
	const char *names;
	size_t names_size;
	uintptr_t base; /* where the program is, less the addresses of its file */
};

static uint8_t *stubs;
static size_t stub_count;

/* ---- the symbols of the program ---- */

static bool inside(const struct file *f, uint64_t offset, uint64_t size)
{
	return offset <= f->size && size <= f->size - offset;
}

static bool find_symbols(struct file *f)
{
	const Elf64_Ehdr *head = (const void *)f->bytes;

	if (f->size < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_shentsize != sizeof(Elf64_Shdr) ||
	    head->e_shoff % _Alignof(Elf64_Shdr) || !inside(f, head->e_shoff, (uint64_t)head->e_shnum * sizeof(Elf64_Shdr)))
		return false;
	const Elf64_Shdr *sections = (const void *)(f->bytes + head->e_shoff);
	for (unsigned i = 0; i < head->e_shnum; i++) {
		const Elf64_Shdr *s = &sections[i];
		if (s->sh_type != SHT_SYMTAB || s->sh_link >= head->e_shnum || s->sh_offset % _Alignof(Elf64_Sym))
			continue;
		const Elf64_Shdr *names = &sections[s->sh_link];
		if (!inside(f, s->sh_offset, s->sh_size) || !inside(f, names->sh_offset, names->sh_size) || !names->sh_size ||
		    f->bytes[names->sh_offset + names->sh_size - 1])
			return false;
		f->symbols = (const void *)(f->bytes + s->sh_offset);
		f->count = s->sh_size / sizeof(Elf64_Sym);
		f->names = (const char *)f->bytes + names->sh_offset;
		f->names_size = names->sh_size;
		return true;
	}
	return false;
}

static bool open_program(struct file *f)
{
	struct stat st;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	*f = (struct file){0};
	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && st.st_size > 0) {
		void *mapped = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (mapped != MAP_FAILED)
			f->bytes = mapped, f->size = (size_t)st.st_size;
	}
	close(fd);
	return f->bytes && find_symbols(f);
}

/* The name of a function of the runtime that the program contains, else NULL. */
static const char *runtime_name(const struct file *f, const Elf64_Sym *s)
{
	const char *name = s->st_name < f->names_size ? f->names + s->st_name : "";
	bool function = ELF64_ST_TYPE(s->st_info) == STT_FUNC && s->st_shndx != SHN_UNDEF;

	return function && (!strncmp(name, "cuda", 4) || !strncmp(name, "__cuda", 6)) ? name : NULL;
}

/* ---- jumps ---- */

static void missing(const char *name)
{
	fprintf(stderr, "ttanalyze simulator: its CUDA runtime has no %s, which the program calls\n", name);
	_exit(127);
}

/* Code that calls missing(name). */
static void *stub_for(const char *name)
{
	uint8_t *at = stubs + STUB * stub_count++;
	void (*function)(const char *) = missing;
	static const uint8_t load_name[] = {0x48, 0xbf}, load_function[] = {0x48, 0xb8}, jump[] = {0xff, 0xe0};

	memcpy(at, load_name, 2);
	memcpy(at + 2, &name, 8);
	memcpy(at + 10, load_function, 2);
	memcpy(at + 12, &function, 8);
	memcpy(at + 20, jump, 2);
	return at;
}

static bool redirect(uint8_t *from, const void *to)
{
	static const uint8_t jump[] = {0xff, 0x25, 0, 0, 0, 0};
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)from & ~(page - 1);
	size_t size = (uintptr_t)from + JUMP - first;

	if (mprotect((void *)first, size, PROT_READ | PROT_WRITE | PROT_EXEC))
		return false;
	memcpy(from, jump, sizeof jump);
	memcpy(from + sizeof jump, &to, sizeof to);
	return !mprotect((void *)first, size, PROT_READ | PROT_EXEC);
}

static void *simulated_runtime(void)
{
	Dl_info us;
	char path[4096];
	const char *slash = dladdr((void *)simulated_runtime, &us) ? strrchr(us.dli_fname, '/') : NULL;

	if (!slash ||
	    snprintf(path, sizeof path, "%.*s/libcudart.so.13", (int)(slash - us.dli_fname), us.dli_fname) >= (int)sizeof path)
		return NULL;
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* The simulator's function with this name, else NULL. Functions without space for a jump are none of the runtime. */
static const void *replacement(const Elf64_Sym *s, const char *name, void *runtime)
{
	return !name || (s->st_value % ALIGNMENT && s->st_size < JUMP) ? NULL : dlsym(runtime, name);
}

static bool replace(const struct file *f, void *runtime)
{
	uint64_t first = UINT64_MAX, last = 0;
	bool ok = true;

	for (size_t i = 0; ok && i < f->count; i++) {
		const Elf64_Sym *s = &f->symbols[i];
		const void *to = replacement(s, runtime_name(f, s), runtime);
		if (!to)
			continue;
		first = s->st_value < first ? s->st_value : first;
		last = s->st_value > last ? s->st_value : last;
		ok = redirect((uint8_t *)(f->base + s->st_value), to);
	}
	/* The others of NVIDIA's lie between them; the program's own functions with such names do not. */
	for (size_t i = 0; ok && i < f->count; i++) {
		const Elf64_Sym *s = &f->symbols[i];
		const char *name = runtime_name(f, s);
		bool call = name && !strncmp(name, "cuda", 4) && name[4] >= 'A' && name[4] <= 'Z';
		if (call && stub_count < STUBS_MOST && s->st_value > first && s->st_value < last && s->st_size >= JUMP &&
		    !dlsym(runtime, name))
			ok = redirect((uint8_t *)(f->base + s->st_value), stub_for(name));
	}
	return ok;
}

static bool contains_runtime(const struct file *f)
{
	for (size_t i = 0; i < f->count; i++) {
		const char *name = runtime_name(f, &f->symbols[i]);
		if (name && !strcmp(name, "__cudaRegisterFatBinary"))
			return true;
	}
	return false;
}

/* The program is the first that is reported. */
static int program_base(struct dl_phdr_info *info, size_t size, void *base)
{
	(void)size;
	*(uintptr_t *)base = info->dlpi_addr;
	return 1;
}

__attribute__((constructor)) static void replace_static_runtime(void)
{
	struct file f;
	void *runtime;

	if (open_program(&f) && contains_runtime(&f)) {
		dl_iterate_phdr(program_base, &f.base);
		stubs = mmap(NULL, (size_t)STUB * STUBS_MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (!(runtime = simulated_runtime()) || stubs == MAP_FAILED || !replace(&f, runtime) ||
		    mprotect(stubs, (size_t)STUB * STUBS_MOST, PROT_READ | PROT_EXEC)) {
			fprintf(stderr, "ttanalyze simulator: the program's CUDA runtime can't be replaced\n");
			_exit(127);
		}
		return; /* stubs have the names of the file */
	}
	if (f.bytes)
		munmap((void *)f.bytes, f.size);
}

#endif
