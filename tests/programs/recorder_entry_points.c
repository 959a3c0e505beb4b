/*
 * Asks for every call of the recorder's table, and for others, in every way that programs use. Prints the
 * result, the query status and the library of the address: with the symbol for a wrapper, with the offset
 * for an address of the driver. "=NAME" after an offset is the first call of the table that the driver
 * exports at that address.
 */
#include "program.h"

#include <dlfcn.h>

#include "../../interpose/driver/call_table.h"

#define X(symbol) extern void linked_##symbol(void) __asm__(#symbol) __attribute__((weak));
HOOK_TABLE(X)
#undef X

typedef CUresult first_lookup(const char *, void **, int, cuuint64_t);
typedef CUresult lookup(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static struct call {
	const char *symbol;
	void *linked, *address;
} table[] = {
#define X(symbol) {#symbol, (void *)linked_##symbol, NULL},
	HOOK_TABLE(X)
#undef X
};
#define CALLS (sizeof(table) / sizeof(*table))

static const char *const others[] = {
	"cuCtxGetDevice", "cuCtxCreate", "cuCtxSetCurrent", "cuDeviceGetUuid", "cuGraphInstantiate",
	"cuGraphExecKernelNodeSetParams", "cuStreamGetCaptureInfo", "cuMemPrefetchAsync", "cuMemAdvise",
	"cuGetErrorString", "cuPointerGetAttribute", "cuMemAlloc_v2", "cuMemAlloc", "cuMemAlloc_v9", "cuNoSuchCall",
	"cu", "cuda", "malloc", "",
};
#define OTHERS (sizeof(others) / sizeof(*others))

static const int versions[] = {
	1000, 2000, 3020, 4000, 5000, 6000, 6050, 7000, 7050, 8000, 9000, 9020, 10000, 10010, 10020, 11000, 11010, 11020,
	11030, 11040, 11060, 11070, 11080, 12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010,
	14000, 99000,
};

static void print_place(void *p)
{
	const char *name = NULL;
	Dl_info info;

	if (!p) {
		printf("nothing\n");
		return;
	}
	if (!dladdr(p, &info)) {
		printf("nowhere\n");
		return;
	}
	const char *slash = strrchr(info.dli_fname, '/');
	const char *library = slash ? slash + 1 : info.dli_fname;
	for (size_t i = 0; i < CALLS && !name; i++)
		if (table[i].address == p)
			name = table[i].symbol;
	if (strstr(library, "ttshim"))
		printf("%s=%s\n", library, info.dli_saddr == p ? info.dli_sname : "?");
	else
		printf("%s+%#lx%s%s\n", library, (unsigned long)((char *)p - (char *)info.dli_fbase), name ? "=" : "",
		       name ? name : "");
}

static void ask_symbol(void *driver, const char *symbol)
{
	printf("handle %s: ", symbol);
	print_place(dlsym(driver, symbol));
	printf("default %s: ", symbol);
	print_place(dlsym(RTLD_DEFAULT, symbol));
	printf("next %s: ", symbol);
	print_place(dlsym(RTLD_NEXT, symbol));
}

static void ask_driver(const char *name, lookup *second, first_lookup *first)
{
	for (unsigned v = 0; v < sizeof(versions) / sizeof(*versions); v++)
		for (unsigned flags = 0; flags <= 3; flags++) {
			CUdriverProcAddressQueryResult status = 77;
			void *p = (void *)table, *q = (void *)table, *r = (void *)table;
			CUresult second_result = second(name, &p, versions[v], flags, &status);
			CUresult first_result = first(name, &q, versions[v], flags);
			CUresult without_status = second(name, &r, versions[v], flags, NULL);

			printf("second %s %d %u: %d %d ", name, versions[v], flags, (int)second_result, (int)status);
			print_place(p == (void *)table ? NULL : p);
			printf("first %s %d %u: %d ", name, versions[v], flags, (int)first_result);
			print_place(q == (void *)table ? NULL : q);
			if (p != r || without_status != second_result)
				printf("differs without status: %s %d %u\n", name, versions[v], flags);
		}
}

/* Its name without version and default stream. */
static const char *base_of(const char *symbol)
{
	static char base[100];
	char *end;

	strcpy(base, symbol);
	if ((end = strstr(base, "_ptsz")) || (end = strstr(base, "_ptds")))
		*end = 0;
	end = strrchr(base, '_');
	if (end && end[1] == 'v')
		*end = 0;
	return base;
}

static bool same_base(const char *one, const char *other)
{
	char base[100];

	strcpy(base, base_of(one));
	return !strcmp(base, base_of(other));
}

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *p = NULL;
	CUdriverProcAddressQueryResult status;

	for (size_t i = 0; i < CALLS; i++) /* the driver's, or with a recorder the wrappers */
		table[i].address = dlsym(driver, table[i].symbol);
	for (size_t i = 0; i < CALLS; i++) {
		ask_symbol(driver, table[i].symbol);
		printf("linked %s: ", table[i].symbol);
		print_place(table[i].linked);
	}
	for (size_t i = 0; i < OTHERS; i++)
		ask_symbol(driver, others[i]);

	lookup *second = (lookup *)dlsym(driver, "cuGetProcAddress_v2");
	first_lookup *first = (first_lookup *)dlsym(driver, "cuGetProcAddress");
	for (unsigned initialised = 0; initialised < 2; initialised++) {
		CUresult r = second("cuGetProcAddress", &p, 12000, 0, &status);
		printf("the second through itself: %d %d\n", (int)r, p == (void *)second);
		r = second("cuGetProcAddress", &p, 11030, 0, &status);
		printf("the first through the second: %d %d\n", (int)r, p == (void *)first);
		r = first("cuGetProcAddress", &p, 12000, 0);
		printf("the second through the first: %d %d\n", (int)r, p == (void *)second);
		OK(cuInit(0));
	}
	printf("linked: %d\n", (lookup *)cuGetProcAddress_v2 == second);
	for (size_t i = 0; i < CALLS; i++) {
		bool asked = false;
		for (size_t k = 0; k < i && !asked; k++)
			asked = same_base(table[k].symbol, table[i].symbol);
		if (!asked)
			ask_driver(base_of(table[i].symbol), second, first);
	}
	for (size_t i = 0; i < OTHERS; i++)
		ask_driver(others[i], second, first);
	return 0;
}
