/*
 * Lets the program's Python interpreter name memory before an epoch: ttanalyze/integrations/names.py does it there.
 *
 * The module is loaded by the interpreter's main thread, where it may run code: between two of its instructions. It
 * starts a thread that waits here, without the interpreter's lock. Before an epoch this thread looks at the
 * program's variables while the thread that cuts the epoch waits, for a bounded time.
 */
#ifndef TT_CALLSTACK_PYTHON_NAMES_H
#define TT_CALLSTACK_PYTHON_NAMES_H

/* Loads the module, if the program has an interpreter. Returns why it can't, or NULL. */
const char *python_names_begin(void);
/* Has memory named for an epoch that is cut now. The caller holds no lock. Does nothing if names are not wanted. */
void python_names_ask(void);

#endif
