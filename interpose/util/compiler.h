/*
 * Attributes of functions and data for the compiler.
 */
#ifndef TT_UTIL_COMPILER_H
#define TT_UTIL_COMPILER_H

/*
 * The launch path: what it runs through lies together, and so does what it reads and hardly
 * anyone writes, so that it takes few cache lines from the program.
 */
#define HOT __attribute__((hot))
#define HOT_DATA __attribute__((section(".data.hot")))

/* In what a sanitizer's runtime calls of the C library by way of us, before it is ready for code that it watches. */
#define UNWATCHED __attribute__((no_sanitize("address", "undefined", "thread")))
#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#endif
