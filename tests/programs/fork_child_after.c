/* A child of a process that uses the driver can't use it; the parent is not affected. */
#include "program.h"

#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	int status = -1;

	start();
	struct work w = begin_work();
	do_step(&w);
	pid_t child = fork();
	if (child == 0) {
		CUdeviceptr p;
		SHOW(cuInit(0));
		SHOW(cuMemAlloc(&p, 100));
		fflush(stdout);
		_exit(8);
	}
	waitpid(child, &status, 0);
	printf("child exited with %d\n", WEXITSTATUS(status));
	do_step(&w);
	return 0;
}
