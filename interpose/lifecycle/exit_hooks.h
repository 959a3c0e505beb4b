/*
 * Completes the run however the process ends.
 */
#ifndef TT_LIFECYCLE_EXIT_HOOKS_H
#define TT_LIFECYCLE_EXIT_HOOKS_H

/*
 * From now on: exit, quick_exit, _exit, exec and signals that end the process finish the recording first; a forked
 * child drops it.
 */
void ending_watch(void);

#endif
