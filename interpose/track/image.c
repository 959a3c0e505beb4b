/*
 * Reads PTX, cubins and fatbins. See image.h for the invariant.
 *
 * A fatbin is a header (magic 0xba55ed50) and entries with 64-byte headers: PTX or ELF for one
 * architecture each, plain or compressed with LZ4 or Zstandard. Any readable entry has all names.
 */
#include "track/image.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format.h"

#define FATBIN_MAGIC 0xba55ed50u
#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_LZ4 0x2000u
#define FATBIN_ZSTD 0x8000u
#define FATBIN_EXACT 0x100000u
#define FATBIN_PTX 1
#define FATBIN_ELF 2
#define MACHINE_CUDA 190
#define EXPANDED_MAX (256u << 20)

struct fatbin_header {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t size;
};

struct fatbin_wrapper {
	uint32_t magic, version;
	const void *data;
};

struct fatbin_entry {
	uint16_t kind, version;
	uint32_t header_size;
	uint64_t size;
	uint32_t packed_size, options;
	uint16_t minor, major;
	uint32_t architecture, name_offset, name_size;
	uint64_t flags, zero, expanded_size;
};

/* 0: not a cubin, or longer than `most` bytes. */
static size_t cubin_size(const void *bytes, size_t most)
{
	Elf64_Ehdr e;
	Elf64_Shdr s;

	if (most < sizeof(e))
		return 0;
	memcpy(&e, bytes, sizeof(e));
	size_t sections = (size_t)e.e_shnum * sizeof(s), segments = (size_t)e.e_phnum * e.e_phentsize;
	if (e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_machine != MACHINE_CUDA || e.e_shentsize != sizeof(s) ||
	    e.e_shoff > most || sections > most - e.e_shoff || e.e_phoff > most || segments > most - e.e_phoff)
		return 0;
	size_t end = e.e_shoff + sections > e.e_phoff + segments ? e.e_shoff + sections : e.e_phoff + segments;
	for (unsigned i = 0; i < e.e_shnum; i++) {
		memcpy(&s, (const char *)bytes + e.e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_type == SHT_NOBITS)
			continue;
		if (s.sh_offset > most || s.sh_size > most - s.sh_offset)
			return 0;
		if (s.sh_offset + s.sh_size > end)
			end = s.sh_offset + s.sh_size;
	}
	return end;
}

static size_t fatbin_size(const void *bytes, size_t most)
{
	struct fatbin_header h;

	if (most < sizeof(h))
		return 0;
	memcpy(&h, bytes, sizeof(h));
	return h.size <= most && h.header_size <= most - h.size ? h.header_size + h.size : 0;
}

struct image image_identify(const void *pointer, size_t most)
{
	const struct fatbin_wrapper *w = pointer;
	struct image image = {.bytes = pointer};
	uint32_t magic;

	if (!pointer || most < sizeof(magic))
		return image;
	/* the driver reads at least this much before it can refuse an image */
	memcpy(&magic, pointer, sizeof(magic));
	if (magic == WRAPPER_MAGIC && most == IMAGE_IN_MEMORY) {
		image.bytes = w->data;
		memcpy(&magic, w->data, sizeof(magic));
	}
	if (magic == FATBIN_MAGIC) {
		image.kind = TT_MODULE_FATBIN;
		image.size = fatbin_size(image.bytes, most);
	} else if (!memcmp(&magic, ELFMAG, SELFMAG)) {
		image.kind = TT_MODULE_CUBIN;
		image.size = cubin_size(image.bytes, most);
	} else if (isspace((unsigned char)*(const char *)pointer) || strchr("./", *(const char *)pointer)) {
		image.kind = TT_MODULE_PTX;
		image.size = strlen(pointer);
	}
	return image.size ? image : (struct image){0};
}

/* True if the system does not say. */
static bool is_mapped(uintptr_t at, size_t size)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = at & -page;
	size_t length = at + size - begin;
	unsigned char *pages = malloc(length / page + 1);
	bool mapped = pages && (!mincore((void *)begin, length, pages) || errno != ENOMEM);

	free(pages);
	return mapped;
}

bool image_readable(const void *pointer)
{
	const struct fatbin_wrapper *w = pointer;
	uint32_t magic = 0;
	Elf64_Ehdr e;

	if (pointer)
		memcpy(&magic, pointer, sizeof(magic));
	if (magic == WRAPPER_MAGIC) {
		pointer = w->data;
		memcpy(&magic, pointer, sizeof(magic));
	}
	if (magic == FATBIN_MAGIC)
		return is_mapped((uintptr_t)pointer, fatbin_size(pointer, IMAGE_IN_MEMORY));
	if (memcmp(&magic, ELFMAG, SELFMAG))
		return true;
	memcpy(&e, pointer, sizeof(e));
	return is_mapped((uintptr_t)pointer + e.e_shoff, (size_t)e.e_shnum * sizeof(Elf64_Shdr)) &&
	       is_mapped((uintptr_t)pointer, cubin_size(pointer, IMAGE_IN_MEMORY));
}

typedef void visit_fn(void *user, const char *name);

static bool lies_in(uint64_t offset, uint64_t length, size_t size)
{
	return offset <= size && length <= size - offset;
}

static void cubin_variables(const char *bytes, size_t size, visit_fn *visit, void *user)
{
	Elf64_Ehdr e;
	Elf64_Shdr s, t;
	Elf64_Sym y;

	if (size < sizeof(e))
		return;
	memcpy(&e, bytes, sizeof(e));
	if (memcmp(e.e_ident, ELFMAG, SELFMAG) || e.e_shentsize != sizeof(s) ||
	    !lies_in(e.e_shoff, (uint64_t)e.e_shnum * sizeof(s), size))
		return;
	for (unsigned i = 0; i < e.e_shnum; i++) {
		memcpy(&s, bytes + e.e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_type != SHT_SYMTAB || s.sh_link >= e.e_shnum || !lies_in(s.sh_offset, s.sh_size, size))
			continue;
		memcpy(&t, bytes + e.e_shoff + s.sh_link * sizeof(t), sizeof(t));
		if (!lies_in(t.sh_offset, t.sh_size, size))
			continue;
		const char *names = bytes + t.sh_offset;
		for (size_t k = 0; k < s.sh_size / sizeof(y); k++) {
			memcpy(&y, bytes + s.sh_offset + k * sizeof(y), sizeof(y));
			if (ELF64_ST_TYPE(y.st_info) == STT_OBJECT && y.st_size && y.st_name < t.sh_size &&
			    memchr(names + y.st_name, 0, t.sh_size - y.st_name))
				visit(user, names + y.st_name);
		}
	}
}

static bool name_character(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

/* At module level a declaration ends at ';'; the last name before '[' or '=' is the variable's. */
static void ptx_variables(const char *text, size_t size, visit_fn *visit, void *user)
{
	const char *end = text + size, *start = text, *stop = NULL;
	bool variable = false;
	char name[1024];
	int depth = 0;

	for (const char *p = text; p < end && *p; p++) {
		if (p[0] == '/' && p + 1 < end && p[1] == '/') {
			while (p + 1 < end && p[1] != '\n')
				p++;
			continue;
		}
		if (p[0] == '/' && p + 1 < end && p[1] == '*') {
			for (p += 2; p + 1 < end && !(p[0] == '*' && p[1] == '/'); p++)
				continue;
			p++;
			continue;
		}
		if (*p == '{' && variable && !stop)
			stop = p;
		if (*p == '{')
			depth++;
		if (*p == '}' && depth)
			depth--;
		if (depth || (*p == '}' && !variable)) {
			if (!depth)
				start = p + 1;
			continue;
		}
		if (*p == '.' && end - p > 7 &&
		    ((!strncmp(p, ".global", 7) && !name_character(p[7])) ||
		     (!strncmp(p, ".const", 6) && !name_character(p[6])))) {
			variable = true;
			stop = NULL;
		}
		if (variable && !stop && (*p == '[' || *p == '='))
			stop = p;
		if (*p != ';')
			continue;
		const char *last = stop ? stop : p;
		while (variable && last > start && !name_character(last[-1]))
			last--;
		const char *first = last;
		while (variable && first > start && name_character(first[-1]))
			first--;
		if (variable && last > first && (size_t)(last - first) < sizeof(name)) {
			memcpy(name, first, (size_t)(last - first));
			name[last - first] = 0;
			visit(user, name);
		}
		variable = false;
		stop = NULL;
		start = p + 1;
	}
}

/* Adds length bytes, up to and including the first that is not 255. */
static bool lengthen(const uint8_t **in, const uint8_t *end, size_t *length)
{
	do {
		if (*in >= end)
			return false;
		*length += **in;
	} while (*(*in)++ == 255);
	return true;
}

/* Decodes the LZ4 block format: literals and matches. False: invalid input. */
static bool lz4_expand(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size)
{
	const uint8_t *in_end = in + in_size;
	size_t at = 0;

	while (in < in_end) {
		uint8_t token = *in++;
		size_t literals = token >> 4, match = token & 15, distance;
		if (literals == 15 && !lengthen(&in, in_end, &literals))
			return false;
		if (literals > (size_t)(in_end - in) || literals > out_size - at)
			return false;
		memcpy(out + at, in, literals);
		in += literals;
		at += literals;
		if (in >= in_end)
			break; /* the last sequence has no match */
		if (in_end - in < 2)
			return false;
		distance = in[0] | (size_t)in[1] << 8;
		in += 2;
		if (match == 15 && !lengthen(&in, in_end, &match))
			return false;
		match += 4;
		if (!distance || distance > at || match > out_size - at)
			return false;
		for (; match; match--, at++)
			out[at] = out[at - distance];
	}
	return at == out_size;
}

typedef size_t decompress_fn(void *, size_t, const void *, size_t);
static decompress_fn *decompress;

static void find_zstd(void)
{
	void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);

	decompress = library ? (decompress_fn *)dlsym(library, "ZSTD_decompress") : NULL;
}

void image_prepare(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_zstd);
}

static bool zstd_expand(const void *in, size_t in_size, void *out, size_t out_size)
{
	image_prepare();
	return decompress && decompress(out, out_size, in, in_size) == out_size;
}

static void named(const char *bytes, size_t size, visit_fn *visit, void *user)
{
	if (size >= SELFMAG && !memcmp(bytes, ELFMAG, SELFMAG))
		cubin_variables(bytes, size, visit, user);
	else
		ptx_variables(bytes, size, visit, user);
}

bool image_entry(const struct image *image, size_t *at, struct image_entry *out)
{
	struct fatbin_header h;
	struct fatbin_entry e;

	if (image->kind != TT_MODULE_FATBIN || image->size < sizeof(h))
		return false;
	memcpy(&h, image->bytes, sizeof(h));
	if (!*at)
		*at = h.header_size;
	if (*at < sizeof(h) || *at > image->size || image->size - *at < sizeof(e))
		return false;
	const uint8_t *begin = (const uint8_t *)image->bytes + *at;
	memcpy(&e, begin, sizeof(e));
	if (e.header_size < sizeof(e) || e.header_size > image->size - *at || e.size > image->size - *at - e.header_size ||
	    (e.flags & IMAGE_COMPRESSED && e.packed_size > e.size))
		return false;
	*out = (struct image_entry){.kind = e.kind == FATBIN_PTX   ? TT_MODULE_PTX
					    : e.kind == FATBIN_ELF ? TT_MODULE_CUBIN
								   : TT_MODULE_UNKNOWN,
				    .capability = e.architecture,
				    .exact = e.flags & FATBIN_EXACT,
				    .begin = begin,
				    .header = e.header_size,
				    .size = e.size,
				    .packed = e.flags & IMAGE_COMPRESSED ? e.packed_size : 0,
				    .expanded = e.expanded_size,
				    .flags = e.flags};
	*at += e.header_size + e.size;
	return true;
}

uint8_t *image_expand(const struct image_entry *e, size_t *size)
{
	const uint8_t *code = e->begin + e->header;
	bool compressed = e->flags & IMAGE_COMPRESSED;

	*size = compressed ? e->expanded : e->size;
	uint8_t *out = *size <= EXPANDED_MAX ? malloc(*size + 1) : NULL;
	if (!out)
		return NULL;
	if (!compressed) {
		memcpy(out, code, *size);
	} else if (!(e->flags & FATBIN_ZSTD ? zstd_expand(code, e->packed, out, *size)
					    : lz4_expand(code, e->packed, out, *size))) {
		free(out);
		return NULL;
	}
	out[*size] = 0; /* terminates text */
	return out;
}

/* False: no memory. */
static bool fatbin_variables(const struct image *image, visit_fn *visit, void *user)
{
	int error = errno;
	bool all = true;
	struct image_entry e;

	for (size_t at = 0, size; image_entry(image, &at, &e);) {
		errno = 0;
		uint8_t *code = image_expand(&e, &size);
		all = code || errno != ENOMEM;
		if (!code && all)
			continue;
		if (code)
			named((const char *)code, size, visit, user);
		free(code);
		break;
	}
	errno = error;
	return all;
}

bool image_variables(const struct image *image, visit_fn *visit, void *user)
{
	if (image->kind == TT_MODULE_PTX)
		ptx_variables(image->bytes, image->size, visit, user);
	else if (image->kind == TT_MODULE_CUBIN)
		cubin_variables(image->bytes, image->size, visit, user);
	else
		return fatbin_variables(image, visit, user);
	return true;
}
