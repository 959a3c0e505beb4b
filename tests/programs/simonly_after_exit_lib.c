/* Calls what it was given when the libraries loaded after it are gone. */
void (*simonly_after_exit_call)(void);

__attribute__((destructor)) static void leave(void)
{
	if (simonly_after_exit_call)
		simonly_after_exit_call();
}
