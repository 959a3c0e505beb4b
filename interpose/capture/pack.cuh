/*
 * Codes blocks without loss: bit planes of small groups. docs/format.md describes the result as encoding 2.
 *
 * Invariant: what a block becomes depends on its contents alone. A code is shorter than
 * the contents; otherwise they are copied.
 */
#ifndef TT_PACK_CUH
#define TT_PACK_CUH

#include "capture/device.cuh"

#define PACK_PAIR 256 /* bytes of two groups: the even words, and the odd words */
#define PACK_GROUPS (2 * (TT_BLOCK_SIZE / PACK_PAIR))
#define PACK_WARPS (TT_PACK_THREADS / WARP)
#define PACK_WIDTHS 3   /* elements of 1, 2 and 4 bytes */
#define PACK_SAMPLED 4  /* one pair of so many chooses the width */
#define PACK_HEADER 4
#define PACK_HEAD 2     /* of each group */

/* Elements of 1 << width bytes, in a word of 32 bits. */
struct elements {
	unsigned shift; /* log2 of the elements in a word */
	unsigned bits;  /* of an element */
	uint32_t signs, exponents, rest; /* bits that change their places: the sign moves below 8 bits of exponent */
	uint32_t lowest;                 /* bit 0 of the top byte of each element */
};

INLINE struct elements elements_of(unsigned width)
{
	struct elements e = { 2 - width, 8u << width, 0x80000000u, 0x7f800000u, 0x007fffffu, 1u << 24 };

	if (width == 1)
		e = { 1, 16, 0x80008000u, 0x7f807f80u, 0x007f007fu, 0x01000100u };
	if (width == 0)
		e = { 2, 8, 0, 0, ~0u, 0x01010101u };
	return e;
}

struct group {
	unsigned base, low, planes;
	unsigned words; /* of all its planes */
};

#define LOW_MASKED 1 /* zeros are told by a plane of their own, so that the base is that of the others */

INLINE uint32_t moved(uint32_t word, const struct elements &e)
{
	return (word & e.exponents) << 1 | (word & e.signs) >> 8 | (word & e.rest);
}

INLINE unsigned low_code(unsigned zeros)
{
	return zeros >= 16 ? 3 : zeros >= 13 ? 2 : 0;
}

INLINE unsigned low_of(unsigned code)
{
	return code == 3 ? 16 : code == 2 ? 13 : 0;
}

/* Bit 0 of the top byte of each element that is not zero. */
INLINE uint32_t nonzero(uint32_t word, const struct elements &e)
{
	uint32_t below = ~(e.lowest << 7);

	return (((word & below) + below) | word) >> 7 & e.lowest;
}

/* The least top byte of all elements of the warp; those without their bit of `which` do not count. */
INLINE unsigned least(uint32_t word, uint32_t which, const struct elements &e)
{
	uint32_t top = word | ((e.lowest & ~which) * 255);
	unsigned base = top >> 24;

	if (e.shift > 0)
		base = min(base, top >> 8 & 0xff);
	if (e.shift > 1)
		base = min(base, min(top >> 16 & 0xff, top & 0xff));
#pragma unroll
	for (unsigned lanes = WARP / 2; lanes; lanes /= 2)
		base = min(base, __shfl_xor_sync(ALL_LANES, base, lanes));
	return base;
}

/* The bits that any element of the warp has. */
INLINE uint32_t united(uint32_t all, const struct elements &e)
{
#pragma unroll
	for (unsigned lanes = WARP / 2; lanes; lanes /= 2)
		all |= __shfl_xor_sync(ALL_LANES, all, lanes);
	if (e.shift > 0)
		all = (all | all >> 16) & 0xffff;
	if (e.shift > 1)
		all = (all | all >> 8) & 0xff;
	return all;
}

INLINE struct group make_group(uint32_t word, const struct elements &e)
{
	uint32_t there = nonzero(word, e), all;
	struct group g;

	word = moved(word, e);
	g.base = least(word, e.lowest, e);
	all = united(word - g.base * e.lowest, e);
	g.low = all ? low_code(__ffs((int)all) - 1) : 0;
	g.planes = all ? 32 - __clz((int)all) - low_of(g.low) : 0;
	g.words = g.planes << e.shift;
	if (g.planes < 2 || !__any_sync(ALL_LANES, there != e.lowest))
		return g;
	unsigned base = least(word, there, e);

	all = united(word - base * there, e);
	unsigned planes = 32 - __clz((int)all);

	if (planes + 1 < g.planes)
		g = { base, LOW_MASKED, planes, (planes + 1) << e.shift };
	return g;
}

/* The words of this lane in a pair; zeros stand after the block's end. */
INLINE uint2 load_pair(uint64_t from, unsigned pair, unsigned length, unsigned lane)
{
	unsigned offset = pair * PACK_PAIR + lane * 8;
	uint64_t v = 0;

	if (offset + 8 <= length) {
		v = *at<uint64_t>(from + offset);
	} else {
#pragma unroll 1
		for (unsigned i = length; i > offset; i--)
			v = v << 8 | *at<uint8_t>(from + i - 1);
	}
	return make_uint2((uint32_t)v, (uint32_t)(v >> 32));
}

/* What the warps of a CTA share. */
struct packing {
	unsigned costs[PACK_WIDTHS]; /* words of the sampled groups */
	unsigned total;              /* words of all planes */
	unsigned starts[PACK_GROUPS];
	uint16_t heads[PACK_GROUPS];
};

/* The width that takes the least, by some pairs. Of equals, the widest. */
INLINE unsigned choose_width(struct packing *s, uint64_t from, unsigned length, unsigned warp, unsigned lane)
{
	unsigned pairs = (length + PACK_PAIR - 1) / PACK_PAIR, best = PACK_WIDTHS - 1;

#pragma unroll 1
	for (unsigned width = 0; width < PACK_WIDTHS; width++) {
		struct elements e = elements_of(width);
		unsigned cost = 0;

#pragma unroll 1
		for (unsigned p = warp * PACK_SAMPLED; p < pairs; p += PACK_WARPS * PACK_SAMPLED) {
			uint2 words = load_pair(from, p, length, lane);

			cost += make_group(words.x, e).words;
			cost += make_group(words.y, e).words;
		}
		if (lane == 0)
			atomicAdd(&s->costs[width], cost);
	}
	__syncthreads();
	for (unsigned width = PACK_WIDTHS - 1; width-- > 0;)
		best = s->costs[width] < s->costs[best] ? width : best;
	return best;
}

/* Where the planes of each group begin. By one warp. */
INLINE void add_up(struct packing *s, unsigned groups, unsigned lane)
{
	const unsigned each = PACK_GROUPS / WARP;
	unsigned sum = 0, before;

#pragma unroll 1
	for (unsigned i = lane * each; i < (lane + 1) * each && i < groups; i++)
		sum += s->starts[i];
	before = sum;
#pragma unroll
	for (unsigned lanes = 1; lanes < WARP; lanes *= 2) {
		unsigned left = __shfl_up_sync(ALL_LANES, before, lanes);

		before += lane >= lanes ? left : 0;
	}
	if (lane == WARP - 1)
		s->total = before;
	before -= sum;
#pragma unroll 1
	for (unsigned i = lane * each; i < (lane + 1) * each && i < groups; i++) {
		unsigned words = s->starts[i];

		s->starts[i] = before;
		before += words;
	}
}

/* Turns a square of bits: lane N gets bit N of each lane's word. */
INLINE uint32_t transpose(uint32_t word, unsigned lane)
{
	uint32_t mask = 0x0000ffff;

#pragma unroll
	for (unsigned lanes = WARP / 2; lanes; lanes /= 2, mask ^= mask << lanes) {
		uint32_t other = __shfl_xor_sync(ALL_LANES, word, lanes);

		word = lane & lanes ? (word & ~mask) | (other >> lanes & mask) : (word & mask) | (other & mask) << lanes;
	}
	return word;
}

INLINE void write_planes(uint64_t to, uint32_t word, unsigned head, const struct elements &e, unsigned lane)
{
	unsigned element = lane / e.bits, plane = lane % e.bits - low_of(head >> 14);
	uint32_t there = e.lowest;

	if (head >> 14 == LOW_MASKED) {
		there = nonzero(word, e);
		uint32_t mask = transpose(there, lane);

		if (e.lowest >> lane & 1)
			*at<uint32_t>(to + 4 * element) = mask;
		to += 4 << e.shift;
	}
	uint32_t bits = transpose(moved(word, e) - (head & 0xff) * there, lane);

	if (plane < (head >> 8 & 63))
		*at<uint32_t>(to + 4 * (plane << e.shift | element)) = bits;
}

/* By all threads of the CTA; from is a multiple of 8, to of 4. */
INLINE void copy_words(uint64_t to, uint64_t from, unsigned length)
{
	unsigned whole = length & ~3u;

	for (unsigned i = 4 * threadIdx.x; i < whole; i += 4 * TT_PACK_THREADS)
		*at<uint32_t>(to + i) = *at<uint32_t>(from + i);
	copy_bytes(to, from, whole + threadIdx.x, length, TT_PACK_THREADS);
}

/* Up to a multiple of TT_CHUNK_ALIGN, because the host writes adjacent blocks with what is between them. */
INLINE void zero_rest(uint64_t to, unsigned size)
{
	unsigned i = size + threadIdx.x;

	if (i < tt_round_up(size, TT_CHUNK_ALIGN))
		*at<uint8_t>(to + i) = 0;
}

/* By all threads of a CTA. from and to: multiples of 8. */
INLINE void pack_block(struct packing *s, uint64_t to, uint64_t from, unsigned length)
{
	unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	unsigned pairs = (length + PACK_PAIR - 1) / PACK_PAIR;

	if (threadIdx.x < PACK_WIDTHS)
		s->costs[threadIdx.x] = 0;
	__syncthreads();
	unsigned width = choose_width(s, from, length, warp, lane);
	struct elements e = elements_of(width);
#pragma unroll 1
	for (unsigned p = warp; p < pairs; p += PACK_WARPS) {
		uint2 words = load_pair(from, p, length, lane);
		struct group even = make_group(words.x, e), odd = make_group(words.y, e);

		if (lane < 2) {
			const struct group &g = lane ? odd : even;

			s->starts[2 * p + lane] = g.words;
			s->heads[2 * p + lane] = (uint16_t)(g.base | g.planes << 8 | g.low << 14);
		}
	}
	__syncthreads();
	if (warp == 0)
		add_up(s, 2 * pairs, lane);
	__syncthreads();
	unsigned size = PACK_HEADER + 2 * pairs * PACK_HEAD + 4 * s->total;
	bool raw = size >= length;
	uint64_t out = to + TT_PACK_PREFIX;

	if (threadIdx.x == 0)
		*at<uint32_t>(to) = raw ? length : size;
	if (raw) {
		copy_words(out, from, length);
		zero_rest(to, TT_PACK_PREFIX + length);
		return;
	}
	if (threadIdx.x == 0)
		*at<uint32_t>(out) = 1u << width;
	out += PACK_HEADER;
	for (unsigned i = threadIdx.x; i < pairs; i += TT_PACK_THREADS)
		*at<uint32_t>(out + 4 * i) = s->heads[2 * i] | (uint32_t)s->heads[2 * i + 1] << 16;
	out += 2 * pairs * PACK_HEAD;
#pragma unroll 1
	for (unsigned p = warp; p < pairs; p += PACK_WARPS) {
		uint2 words = load_pair(from, p, length, lane);

		write_planes(out + 4 * s->starts[2 * p], words.x, s->heads[2 * p], e, lane);
		write_planes(out + 4 * s->starts[2 * p + 1], words.y, s->heads[2 * p + 1], e, lane);
	}
}

#define PACK_KERNEL extern "C" __global__ void __launch_bounds__(TT_PACK_THREADS, TT_PACK_CTAS_PER_SM)

#endif
