/* _exit in the middle of work: no handler runs. */
#include "program.h"

#include <unistd.h>

int main(void)
{
	start();
	struct work w = begin_work();
	do_step(&w);
	do_step(&w);
	OK(cuMemsetD8Async(w.data, 1, 100000, NULL));
	_exit(8);
}
