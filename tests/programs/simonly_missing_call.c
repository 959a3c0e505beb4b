/* Calls that the simulator does not have return an error. */
#include "program.h"

#include <dlfcn.h>

int main(void)
{
	CUdriverProcAddressQueryResult found;
	CUresult (*call)(void *, ...) = dlsym(RTLD_DEFAULT, "cuTexRefCreate");
	CUipcMemHandle handle;
	const void *table;
	void *p = NULL;

	SHOW(cuIpcGetMemHandle(&handle, 0));
	start();
	SHOW(call(&handle, NULL, NULL, NULL));
	SHOW(cuGetProcAddress("cuTexRefCreate", &p, 13000, 0, &found));
	printf("the same %d\n", p == (void *)(uintptr_t)call);
	SHOW(cuIpcGetMemHandle(&handle, allocate(100)));
	SHOW(cuGetExportTable(&table, &(CUuuid){{0}}));
	return 0;
}
