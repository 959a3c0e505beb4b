/* Results of sigaction and signal for handlers that are set and removed, also during work. */
#include "program.h"

#include <signal.h>

static volatile sig_atomic_t got;

static void handler(int number)
{
	got = number;
}

static const char *name_of(sighandler_t h)
{
	return h == SIG_DFL ? "default" : h == SIG_IGN ? "ignored" : h == handler ? "ours" : h == SIG_ERR ? "error" : "other";
}

static void show(int number)
{
	struct sigaction action;

	printf("%d", sigaction(number, NULL, &action));
	printf(" %s flags %x masked %d %d\n", name_of(action.sa_handler), (unsigned)action.sa_flags & 0x7fffffff & ~0x04000000u,
	       sigismember(&action.sa_mask, SIGUSR2), sigismember(&action.sa_mask, SIGTERM));
}

int main(void)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGSEGV, SIGHUP, SIGUSR1};
	struct sigaction old, mine = {.sa_handler = SIG_DFL, .sa_flags = SA_RESTART | SA_NODEFER};

	start();
	struct work w = begin_work();
	do_step(&w);
	sigaddset(&mine.sa_mask, SIGUSR2);
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		int n = numbers[i];

		show(n);
		printf("was %s\n", name_of(signal(n, handler)));
		show(n);
		raise(n);
		printf("got %d\n", got == n);
		printf("was %s\n", name_of(signal(n, SIG_DFL)));
		show(n);
		printf("%d", sigaction(n, &mine, &old));
		printf(" was %s\n", name_of(old.sa_handler));
		show(n);
		mine.sa_handler = handler;
		printf("%d", sigaction(n, &mine, &old));
		printf(" was %s flags %x\n", name_of(old.sa_handler), (unsigned)old.sa_flags & SA_NODEFER);
		mine.sa_handler = SIG_DFL;
		printf("%d", sigaction(n, &mine, &old));
		printf(" was %s\n", name_of(old.sa_handler));
		printf("was %s\n", name_of(signal(n, SIG_IGN)));
		raise(n);
		printf("was %s\n", name_of(signal(n, SIG_DFL)));
	}
	printf("%d %d\n", sigaction(SIGKILL, &mine, NULL), sigaction(1000, NULL, &old));
	do_step(&w);
	raise(SIGHUP);
	return 1;
}
