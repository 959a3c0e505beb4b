/* abort in the middle of work. */
#include "program.h"

int main(void)
{
	start();
	struct work w = begin_work();
	do_step(&w);
	do_step(&w);
	OK(cuMemsetD8Async(w.data, 1, 100000, NULL));
	abort();
}
