/* A kernel gives up: the context is lost, and every later call says so. */
#include "fault.h"

int main(void)
{
	return show_fault("fail", NULL);
}
