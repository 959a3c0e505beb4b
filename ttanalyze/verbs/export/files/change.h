/* What the command line asks for, in place of what was recorded. */
#ifndef CHANGE_H
#define CHANGE_H

#include <stddef.h>

struct change {
	int times;             /* measured launches */
	unsigned int grid[3];  /* 0: as recorded */
	unsigned int block[3]; /* 0: as recorded */
	long shared;           /* bytes, -1: as recorded */
	int threads, blocks;   /* launch bounds, 0: as in the code */
	int registers;         /* the most of a thread, 0: as recorded */
	const char *code;      /* a file, NULL: the recorded code */
};

/* Prints a line and ends with status 2. */
_Noreturn void fail(const char *what, const char *why);
void *allocate(size_t size);
/* The contents of a file, with a zero behind them. */
void *read_file(const char *name, size_t *size);

/* Reads the command line; ends the program if it can't be understood. */
struct change read_change(int argc, char **argv);
/*
 * The code to load: the file that was given, CUDA C++ and LLVM IR compiled for a device such as 90; else `image`,
 * or its PTX where it must be compiled again.
 */
void *read_code(const struct change *change, const char *image, const char *ptx, const char *kernel,
	int architecture);

#endif
