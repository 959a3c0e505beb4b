/* Three threads end the process at the same time, with the same status. */
#include "program.h"

#include <pthread.h>

static pthread_barrier_t together;

static void *end(void *unused)
{
	pthread_barrier_wait(&together);
	exit(10);
	return unused;
}

int main(void)
{
	pthread_t threads[2];

	start();
	struct work w = begin_work();
	do_step(&w);
	fflush(stdout);
	pthread_barrier_init(&together, NULL, 3);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, end, NULL);
	end(NULL);
}
