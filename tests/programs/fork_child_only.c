/* The parent never touches the driver; its child does the work. */
#include "program.h"

#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	int status = -1;

	printf("before\n");
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		start();
		struct work w = begin_work();
		do_step(&w);
		do_step(&w);
		return 5;
	}
	waitpid(child, &status, 0);
	printf("child exited with %d\n", WEXITSTATUS(status));
	return 0;
}
