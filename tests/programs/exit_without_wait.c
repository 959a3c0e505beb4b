/* The program ends while what it submitted may still run: it never waits. */
#include "program.h"

int main(void)
{
	start();
	OK(cuMemsetD8Async(allocate(40000), 7, 40000, NULL));
	printf("submitted\n");
	return 0;
}
