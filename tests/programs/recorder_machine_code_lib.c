/*
 * A driver that loads machine code. It stands before the simulator, which handles all other calls. It
 * prints what it loads and stores a copy in the folder $TAKEN. With $REFUSES it loads only the program's
 * own code.
 */
#include "program.h"

#include <dlfcn.h>
#include <elf.h>

#define LOG "out of sorts"

const void *own_image, *compiled; /* what the program loads, and what comes of compiling it */
size_t compiled_size;
bool own_is_cut; /* and can't be read as far as it says */
static const void *preserved;
static unsigned count;
static char handles[100];

/* In it calls are found here before they are in the simulator. */
void *driver_open(void)
{
	Dl_info here;

	return dladdr(handles, &here) ? dlopen(here.dli_fname, RTLD_NOW) : NULL;
}

static size_t size_of(const void *image)
{
	const Elf64_Ehdr *e = image;
	const Elf64_Shdr *s = (const void *)((const char *)image + e->e_shoff);
	size_t end = e->e_shoff + e->e_shnum * sizeof(*s);
	uint64_t entries;

	if (memcmp(image, ELFMAG, SELFMAG)) {
		memcpy(&entries, (const char *)image + 8, sizeof(entries));
		return 16 + entries;
	}
	if (e->e_phoff + e->e_phnum * sizeof(Elf64_Phdr) > end)
		end = e->e_phoff + e->e_phnum * sizeof(Elf64_Phdr);
	for (unsigned i = 0; i < e->e_shnum; i++)
		if (s[i].sh_type != SHT_NOBITS && s[i].sh_offset + s[i].sh_size > end)
			end = s[i].sh_offset + s[i].sh_size;
	return end;
}

static bool is_wrapper(const void *image)
{
	return !memcmp(image, "\xb1\x43\x62\x46", 4);
}

static bool is_code(const void *image)
{
	return !memcmp(image, ELFMAG, SELFMAG) || !memcmp(image, "\x50\xed\x55\xba", 4) || is_wrapper(image);
}

static CUresult take(const char *call, const void *image, void *out)
{
	char path[4096];
	bool own = image == own_image;
	if (own && own_is_cut)
		return CUDA_ERROR_INVALID_IMAGE;
	CUresult r = !own && getenv("REFUSES") ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
	void *handle = &handles[count];

	if (is_wrapper(image))
		memcpy(&image, (const char *)image + 8, sizeof(image));
	snprintf(path, sizeof(path), "%s/%u", getenv("TAKEN"), count++);
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(image, size_of(image), 1, f) != 1 || fclose(f))
		abort();
	printf("%s: %s image, %s\n", call, own ? "its own" : "another", result_name(r));
	memcpy(out, &handle, sizeof(handle));
	return r;
}

/* As a driver does: how much room there is, and then how much of it was used. */
static void answer(CUresult r, const CUjit_option *options, void **values, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
			printf("room for %u bytes of errors\n", (unsigned)(uintptr_t)values[i]);
			values[i] = (void *)(r ? sizeof(LOG) : 0);
		}
}

#define NEXT(symbol) ((__typeof__(&symbol))dlsym(RTLD_NEXT, #symbol))

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	return is_code(image) ? take(__func__, image, out) : NEXT(cuModuleLoadData)(out, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
	return take(__func__, image, out);
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, CUjit_option *options, void **values)
{
	if (!is_code(image))
		return NEXT(cuModuleLoadDataEx)(out, image, n, options, values);
	CUresult r = take(__func__, image, out);
	answer(r, options, values, n);
	return r;
}

CUresult cuLibraryLoadData(CUlibrary *out, const void *image, CUjit_option *jit, void **values, unsigned n,
			   CUlibraryOption *options, void **option_values, unsigned m)
{
	if (!is_code(image))
		return NEXT(cuLibraryLoadData)(out, image, jit, values, n, options, option_values, m);
	CUresult r = take(__func__, image, out);
	answer(r, jit, values, n);
	for (unsigned i = 0; i < m; i++)
		if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED)
			preserved = image;
	return r;
}

/* Whether what a library was to be loaded from without a copy of it is still there. */
bool driver_finds_preserved(void)
{
	return preserved && is_code(preserved);
}

CUresult cuModuleLoad(CUmodule *out, const char *path)
{
	(void)out;
	(void)path;
	printf("%s: the file\n", __func__);
	return CUDA_ERROR_INVALID_IMAGE;
}

CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jit, void **values, unsigned n,
			       CUlibraryOption *options, void **option_values, unsigned m)
{
	(void)out, (void)path, (void)jit, (void)values, (void)n, (void)options, (void)option_values, (void)m;
	printf("%s: the file\n", __func__);
	return CUDA_ERROR_INVALID_IMAGE;
}

/* A compiler whose answer is known beforehand. */

CUresult cuLinkCreate_v2(unsigned n, CUjit_option *options, void **values, CUlinkState *out)
{
	(void)options;
	(void)values;
	printf("%s: %u options\n", __func__, n);
	*out = (CUlinkState)handles;
	return compiled ? CUDA_SUCCESS : CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
}

CUresult cuLinkAddData_v2(CUlinkState link, CUjitInputType type, void *data, size_t size, const char *name, unsigned n,
			  CUjit_option *options, void **values)
{
	(void)link, (void)name, (void)n, (void)options, (void)values;
	printf("%s: PTX %d, %zd bytes left out\n", __func__, type == CU_JIT_INPUT_PTX, strlen(data) + 1 - size);
	return CUDA_SUCCESS;
}

CUresult cuLinkComplete(CUlinkState link, void **out, size_t *size)
{
	(void)link;
	*out = (void *)compiled;
	*size = compiled_size;
	return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState link)
{
	(void)link;
	return CUDA_SUCCESS;
}
