/* The result of cuInit for the TT_SIM_ variables that are set. */
#include "program.h"

int main(void)
{
	SHOW(cuInit(0));
	return 0;
}
