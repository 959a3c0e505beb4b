/* A process in the middle of its work starts another program, and reads what it prints. */
#include "program.h"

#include <sys/wait.h>

int main(void)
{
	char line[100] = "";

	start();
	struct work w = begin_work();
	do_step(&w);
	FILE *child = popen("echo child; exit 4", "r");
	if (!child || !fgets(line, sizeof(line), child))
		return 1;
	printf("%s", line);
	printf("child exited with %d\n", WEXITSTATUS(pclose(child)));
	do_step(&w);
	return 0;
}
