/* The program empties its environment before it starts the driver. */
#include "program.h"

int main(void)
{
	clearenv();
	start();
	struct work w = begin_work();
	do_step(&w);
	do_step(&w);
	return 0;
}
