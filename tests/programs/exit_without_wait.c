/* The program ends without a wait, while submitted work may still run. */
#include "program.h"

int main(void)
{
	start();
	OK(cuMemsetD8Async(allocate(40000), 7, 40000, NULL));
	printf("submitted\n");
	return 0;
}
