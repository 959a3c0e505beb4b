/*
 * Arithmetic over the 32 lanes of a warp: one loop for each operation and type, over rows that are
 * identical or do not overlap, which INDEPENDENT promises to the compiler.
 *
 * S is the type of a lane in its row, T the type of the computation, U the unsigned type that the result
 * is cut to. Inactive lanes are computed as well: no expression may trap.
 */
#ifndef TT_SIM_PTX_LANES_H
#define TT_SIM_PTX_LANES_H

#include "sim/ptx/internal.h"

#define LANES INDEPENDENT for (int i = 0; i < PTX_WARP; i++)

#define LANES1(name, R, S, T, U, expression)                                                  \
	static void name(const struct ptx_op *op, void *dst, const void *const *src)          \
	{                                                                                     \
		R *d = dst;                                                                   \
		const S *pa = src[0];                                                         \
		(void)op;                                                                     \
		LANES                                                                         \
		{                                                                             \
			T a = (T)pa[i];                                                       \
			d[i] = (U)(expression);                                               \
		}                                                                             \
	}

#define LANES2(name, R, S, S2, T, T2, U, expression)                                          \
	static void name(const struct ptx_op *op, void *dst, const void *const *src)          \
	{                                                                                     \
		R *d = dst;                                                                   \
		const S *pa = src[0];                                                         \
		const S2 *pb = src[1];                                                        \
		(void)op;                                                                     \
		LANES                                                                         \
		{                                                                             \
			T a = (T)pa[i];                                                       \
			T2 b = (T2)pb[i];                                                     \
			d[i] = (U)(expression);                                               \
		}                                                                             \
	}

#define LANES3(name, R, S, S3, T, T3, U, expression)                                          \
	static void name(const struct ptx_op *op, void *dst, const void *const *src)          \
	{                                                                                     \
		R *d = dst;                                                                   \
		const S *pa = src[0], *pb = src[1];                                           \
		const S3 *pc = src[2];                                                        \
		(void)op;                                                                     \
		LANES                                                                         \
		{                                                                             \
			T a = (T)pa[i], b = (T)pb[i];                                         \
			T3 c = (T3)pc[i];                                                     \
			d[i] = (U)(expression);                                               \
		}                                                                             \
	}

#endif
