/*
 * The launch path: what it runs through lies together, and so does what it reads and hardly
 * anyone writes, so that it takes few cache lines from the program.
 */
#ifndef TT_UTIL_HOT_H
#define TT_UTIL_HOT_H

#define HOT __attribute__((hot))
#define HOT_DATA __attribute__((section(".data.hot")))

#endif
