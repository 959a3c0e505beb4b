/*
 * Instructions that are put into kernels, without operands and schedule: as nvcc 13 writes them and
 * nvdisasm reads them for every architecture that code.c knows.
 */
#ifndef TT_SASS_ENCODINGS_H
#define TT_SASS_ENCODINGS_H

#include "code.h"

/* BRA; NOP */
static const struct instruction encoding_branch = {0x0000000000007947, 0x0000000003800000};
static const struct instruction encoding_nop = {0x0000000000007918, 0x000fc00000000000};
/* NANOSLEEP imm; NANOSLEEP b */
static const struct instruction encoding_sleep = {0x000000000000795d, 0x0000000003800000};
static const struct instruction encoding_sleep_register = {0x000000000000735d, 0x0000000003800000};
/* S2R d, SR_TID.X; CS2R.32 d, SR_CLOCKLO */
static const struct instruction encoding_thread = {0x0000000000007919, 0x0000000000002100};
static const struct instruction encoding_clock = {0x0000000000007805, 0x0000000000005000};
/* IMAD d, a, imm, RZ; IMAD.HI.U32 d, a, imm, RZ; IADD3 d, a, imm, RZ */
static const struct instruction encoding_multiply = {0x0000000000007824, 0x00000000078e02ff};
static const struct instruction encoding_multiply_high = {0x0000000000007827, 0x00000000078e00ff};
static const struct instruction encoding_add = {0x0000000000007810, 0x0000000007ffe0ff};
/* LOP3.LUT d, a, imm, c, 0x96, !PT; LOP3.LUT d, a, b, RZ, 0x3c, !PT; LOP3.LUT d, a, imm, RZ, 0xc0, !PT */
static const struct instruction encoding_xor3 = {0x0000000000007812, 0x00000000078e9600};
static const struct instruction encoding_xor = {0x0000000000007212, 0x00000000078e3cff};
static const struct instruction encoding_and = {0x0000000000007812, 0x00000000078ec0ff};
/* SHF.R.U32.HI d, RZ, imm, c; SHF.R.S32.HI d, RZ, imm, c */
static const struct instruction encoding_shift = {0x00000000ff007819, 0x0000000000011600};
static const struct instruction encoding_shift_signed = {0x00000000ff007819, 0x0000000000011400};
/* S2R d, SR_CgaCtaId; LDC d, c[0x0][0x188]; CS2R.32 d, SR_CgaSize; LDC d, c[0x0][a+0x2cc] */
static const struct instruction encoding_rank = {0x0000000000007919, 0x0000000000008800};
static const struct instruction encoding_cluster_size_90 = {0x00006200ff007b82, 0x0000000000000800};
static const struct instruction encoding_cluster_shape = {0x0000000000007805, 0x0000000000008a00};
static const struct instruction encoding_cluster_size_100 = {0x0000b30000007b82, 0x0000000000000800};

#endif
