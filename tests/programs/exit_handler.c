/* Handlers that run at exit still use the driver. */
#include "program.h"

static struct work w;

static void last(void)
{
	do_step(&w);
	SHOW(cuMemFree(w.data));
	SHOW(cuCtxSynchronize());
	SHOW(cuDevicePrimaryCtxRelease(0));
}

int main(void)
{
	start();
	w = begin_work();
	atexit(last);
	do_step(&w);
	return 0;
}
