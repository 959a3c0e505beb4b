/*
 * Instructions that are inserted into kernels, without operands and schedule, as nvcc 13 writes
 * them and nvdisasm reads them for every architecture that code.c knows. An unused register field
 * has the last register, 255; for uniform registers before sm_100 it is 63.
 */
#ifndef TT_SASS_ENCODINGS_H
#define TT_SASS_ENCODINGS_H

#include "sass/code.h"

/* BRA; BRA.U UP0; NOP */
static const struct instruction encoding_branch = {0x0000000000007947, 0x0000000003800000};
static const struct instruction encoding_branch_if = {0x0000000100007547, 0x000000000b800000};
static const struct instruction encoding_nop = {0x0000000000007918, 0x000fc00000000000};
/* S2UR d, SR_CLOCKLO; SR_VIRTID; SR_CgaCtaId; SR_CgaSize */
static const struct instruction encoding_clock = {0x00000000000079c3, 0x0000000000005000};
static const struct instruction encoding_warp = {0x00000000000079c3, 0x0000000000000300};
static const struct instruction encoding_rank = {0x00000000000079c3, 0x0000000000008800};
static const struct instruction encoding_cluster_shape = {0x00000000000079c3, 0x0000000000008a00};
/* ULDC d, c[0x0][0x188]; LDCU d, c[0x0][a+0x2cc] */
static const struct instruction encoding_cluster_size_90 = {0x0000620000007ab9, 0x0000000000000800};
static const struct instruction encoding_cluster_size_100 = {0x00005980000077ac, 0x0000000008000800};
/* UMOV d, imm; UIADD3 d, a, imm, URZ; UIADD3 d, -a, b, URZ */
static const struct instruction encoding_move = {0x0000000000007882, 0x0000000000000000};
static const struct instruction encoding_add = {0x0000000000007890, 0x000000000fffe0ff};
static const struct instruction encoding_less = {0x0000000000007290, 0x000000000fffe1ff};
/* UIMAD d, a, imm, URZ; UIMAD.WIDE.U32 d, a, imm, URZ */
static const struct instruction encoding_multiply = {0x00000000000078a4, 0x000000000f8e02ff};
static const struct instruction encoding_multiply_wide = {0x00000000000078a5, 0x000000000f8e00ff};
/* ULOP3.LUT d, a, imm, c, 0x96, !UPT; d, a, b, URZ, 0x3c; d, a, b, URZ, 0xc0 */
static const struct instruction encoding_xor3 = {0x0000000000007892, 0x000000000f8e9600};
static const struct instruction encoding_xor = {0x0000000000007292, 0x000000000f8e3cff};
static const struct instruction encoding_and = {0x0000000000007292, 0x000000000f8ec0ff};
/* USHF.R.U32.HI d, URZ, imm, c; USHF.R.S32.HI d, URZ, imm, c */
static const struct instruction encoding_shift = {0x00000000ff007899, 0x0000000008011600};
static const struct instruction encoding_shift_signed = {0x00000000ff007899, 0x0000000008011400};
/* UISETP.LT.U32.AND UP0, UPT, a, b, UPT */
static const struct instruction encoding_if_below = {0x000000000000728c, 0x000000000bf01070};

#endif
