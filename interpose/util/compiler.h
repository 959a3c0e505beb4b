/*
 * Attributes of functions and data for the compiler.
 */
#ifndef TT_UTIL_COMPILER_H
#define TT_UTIL_COMPILER_H

/*
 * The launch path: its code is adjacent, and so is the data that it reads and that is rarely written. So it uses
 * few cache lines. A section whose name has no dot is one piece of the library; ".data.hot" would be one of each file.
 */
#define HOT __attribute__((hot))
#define ON_PATH inline __attribute__((always_inline)) /* a part of it, without a call */
#define HOT_DATA __attribute__((section("tt_hot")))
#define HOT_TABLE __attribute__((section("tt_hot_table"))) /* apart from those, which lie in one or two lines */

/* For functions that a sanitizer's runtime calls through the recorder before it can instrument code. */
#define UNWATCHED __attribute__((no_sanitize("address", "undefined", "thread")))
/* A call at the end of a function becomes a jump. gcc does so with optimisation or this, clang with optimisation. */
#ifdef __clang__
#define TAIL_CALLS
#else
#define TAIL_CALLS __attribute__((optimize("optimize-sibling-calls")))
#endif
#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#endif
