/* A program that is linked with the driver and asks for its version, but never starts it. */
#include "program.h"

int main(void)
{
	int version = 0;

	SHOW(cuDriverGetVersion(&version));
	printf("some version %d\n", version >= 12000);
	return 0;
}
