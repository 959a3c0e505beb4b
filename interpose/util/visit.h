/*
 * Code around the recorder's work within a call of the program: it keeps errno, and prevents cancellation of the
 * thread, which would leave a lock held.
 */
#ifndef TT_UTIL_VISIT_H
#define TT_UTIL_VISIT_H

#include <errno.h>
#include <pthread.h>

struct visit {
	int error, cancel;
};

static inline struct visit visit_begin(void)
{
	struct visit v = {.error = errno};

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &v.cancel);
	return v;
}

static inline void visit_end(struct visit v)
{
	pthread_setcancelstate(v.cancel, NULL);
	errno = v.error;
}

#endif
