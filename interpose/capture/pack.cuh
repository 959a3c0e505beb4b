/*
 * Codes blocks without loss: bit planes of small groups. docs/format.md describes the result as encoding 2.
 *
 * Invariant: what a block becomes depends on its contents alone. A code is shorter than
 * the contents; otherwise they are copied.
 *
 * A warp takes tiles of 32 groups. Each lane has the words of one group in registers, so it needs no other lane to
 * code them. Tiles enter and leave through shared memory: the accesses to the block and its code are whole lines.
 */
#ifndef TT_PACK_CUH
#define TT_PACK_CUH

#include "capture/device.cuh"

#define PACK_PAIR 256 /* bytes of two groups: the even words, and the odd words */
#define PACK_GROUPS (2 * (TT_BLOCK_SIZE / PACK_PAIR))
#define PACK_WARPS (TT_PACK_THREADS / WARP)
#define PACK_WIDTHS 3   /* elements of 1, 2 and 4 bytes */
#define PACK_LINE 128   /* bytes that go to memory together */
#define PACK_HEADER 4
#define PACK_HEAD 2     /* of each group */
#define PACK_WORDS 32   /* of a group */
#define PACK_TILE_PAIRS (WARP / 2)
#define PACK_TILE (PACK_TILE_PAIRS * PACK_PAIR)
#define PACK_TILES (TT_BLOCK_SIZE / PACK_TILE)
#define PACK_ROW (PACK_PAIR / 8 + 1) /* a pair in shared memory, in units of 8 bytes: lanes read from all banks */

/* Elements of 1 << width bytes, in a word of 32 bits. */
struct elements {
	unsigned shift; /* log2 of the elements in a word */
	unsigned bits;  /* of an element */
	uint32_t signs, exponents, rest; /* bits that change their places: the sign moves below 8 bits of exponent */
	uint32_t lowest;                 /* bit 0 of the top byte of each element */
};

INLINE struct elements elements_of(unsigned width)
{
	struct elements e = {2 - width, 8u << width, 0x80000000u, 0x7f800000u, 0x007fffffu, 1u << 24};

	if (width == 1)
		e = {1, 16, 0x80008000u, 0x7f807f80u, 0x007f007fu, 0x01000100u};
	if (width == 0)
		e = {2, 8, 0, 0, ~0u, 0x01010101u};
	return e;
}

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

INLINE unsigned make_head(unsigned base, unsigned planes, unsigned low)
{
	return base | planes << 8 | low << 14;
}

INLINE unsigned planes_of(unsigned head)
{
	return head >> 8 & 63;
}

INLINE bool is_masked(unsigned head)
{
	return head >> 14 == LOW_MASKED;
}

/* Words of all planes of a group. */
INLINE unsigned words_of(unsigned head, const struct elements &e)
{
	return (planes_of(head) + is_masked(head)) << e.shift;
}

/* Bit 0 of the top byte of each element that is not zero. */
INLINE uint32_t nonzero(uint32_t word, const struct elements &e)
{
	uint32_t below = ~(e.lowest << 7);

	return (((word & below) + below) | word) >> 7 & e.lowest;
}

/* A word whose top byte is the least of both: of `least`, and of the elements of another word. */
INLINE uint32_t least_of(uint32_t least, uint32_t word, const struct elements &e)
{
	least = min(least, word);
	if (e.shift > 0)
		least = min(least, word << 16);
	if (e.shift > 1)
		least = min(least, min(word << 8, word << 24));
	return least;
}

/* The bits of all elements. */
INLINE uint32_t united(uint32_t all, const struct elements &e)
{
	if (e.shift > 0)
		all = (all | all >> 16) & 0xffff;
	if (e.shift > 1)
		all = (all | all >> 8) & 0xff;
	return all;
}

/* The same for the greatest. */
INLINE uint32_t greatest_of(uint32_t greatest, uint32_t word, const struct elements &e)
{
	greatest = max(greatest, word);
	if (e.shift > 0)
		greatest = max(greatest, word << 16);
	if (e.shift > 1)
		greatest = max(greatest, max(word << 8, word << 24));
	return greatest;
}

/* The head of a group with zeros, if masked it is smaller; plain: its other head, whose base is 0. all: its bits. */
INLINE unsigned mask_zeros(const uint32_t *group, const struct elements &e, unsigned plain, uint32_t all)
{
	uint32_t least = ~0u, greatest = 0, below = (1u << (e.bits - 8)) - 1;

#pragma unroll
	for (unsigned i = 0; i < PACK_WORDS; i++) {
		least = least_of(least, group[i] | (e.lowest & ~nonzero(group[i], e)) * 255, e);
		greatest = greatest_of(greatest, group[i], e);
	}
	least >>= 24;
	uint32_t top = (greatest >> 24) - least;
	unsigned planes = top ? e.bits - 8 + 32 - __clz((int)top) : 32 - __clz((int)(all & below));

	return planes + 1 < planes_of(plain) ? make_head(least, planes, LOW_MASKED) : plain;
}

/* The words of the group are moved ones. */
INLINE unsigned head_of(const uint32_t *group, const struct elements &e)
{
	uint32_t least = ~0u, all = 0;
	unsigned planes = 0, low = 0;

#pragma unroll
	for (unsigned i = 0; i < PACK_WORDS; i++)
		least = least_of(least, group[i], e);
	least >>= 24;
#pragma unroll
	for (unsigned i = 0; i < PACK_WORDS; i++)
		all |= group[i] - least * e.lowest;
	all = united(all, e);
	if (all) {
		low = low_code(__ffs((int)all) - 1);
		planes = 32 - __clz((int)all) - low_of(low);
	}
	unsigned head = make_head(least, planes, low);

	return planes < 2 || least ? head : mask_zeros(group, e, head, all); /* zeros have top byte 0 */
}

/* What the warps of a CTA share. */
struct packing {
	uint2 tiles[PACK_WARPS][PACK_TILE_PAIRS * PACK_ROW]; /* each warp's own */
	unsigned costs[PACK_WIDTHS]; /* words of all planes */
	unsigned words[PACK_WIDTHS][PACK_TILES]; /* of a tile's planes */
	uint16_t heads[PACK_WIDTHS][PACK_GROUPS];
};

/* The 8 bytes of this lane in a pair; zeros stand after the block's end. */
INLINE uint2 load_end(uint64_t from, unsigned offset, unsigned length)
{
	uint64_t v = 0;

#pragma unroll 1
	for (unsigned i = min(length, offset + 8); i > offset; i--)
		v = v << 8 | *at<uint8_t>(from + i - 1);
	return make_uint2((uint32_t)v, (uint32_t)(v >> 32));
}

INLINE void load_tile(uint2 *tile, uint64_t from, unsigned offset, unsigned length, unsigned lane)
{
	__syncwarp();
	if (offset + PACK_TILE <= length) {
		uint2 pairs[PACK_TILE_PAIRS];

#pragma unroll
		for (unsigned p = 0; p < PACK_TILE_PAIRS; p++)
			pairs[p] = *at<uint2>(from + offset + p * PACK_PAIR + lane * 8);
#pragma unroll
		for (unsigned p = 0; p < PACK_TILE_PAIRS; p++)
			tile[p * PACK_ROW + lane] = pairs[p];
	} else {
#pragma unroll 1
		for (unsigned p = 0; p < PACK_TILE_PAIRS; p++)
			tile[p * PACK_ROW + lane] = load_end(from, offset + p * PACK_PAIR + lane * 8, length);
	}
	__syncwarp();
}

/* The moved words of this lane's group. */
INLINE void load_group(uint32_t *group, const uint2 *tile, const struct elements &e, unsigned lane)
{
	const uint32_t *words = (const uint32_t *)(tile + lane / 2 * PACK_ROW) + lane % 2;

#pragma unroll
	for (unsigned i = 0; i < PACK_WORDS; i++)
		group[i] = moved(words[2 * i], e);
}

INLINE unsigned sum(unsigned value)
{
#pragma unroll
	for (unsigned lanes = WARP / 2; lanes; lanes /= 2)
		value += __shfl_xor_sync(ALL_LANES, value, lanes);
	return value;
}

/* The sum up to this lane's value. */
INLINE unsigned sum_to(unsigned value, unsigned lane)
{
#pragma unroll
	for (unsigned lanes = 1; lanes < WARP; lanes *= 2) {
		unsigned left = __shfl_up_sync(ALL_LANES, value, lanes);

		value += lane >= lanes ? left : 0;
	}
	return value;
}

/* The heads of all groups with each width. Returns the width that takes the least; of equals, the widest. */
INLINE unsigned plan(struct packing *s, uint64_t from, unsigned length, unsigned warp, unsigned lane)
{
	unsigned best = PACK_WIDTHS - 1;

#pragma unroll 1
	for (unsigned t = warp; t * PACK_TILE < length; t += PACK_WARPS) {
		load_tile(s->tiles[warp], from, t * PACK_TILE, length, lane);
#pragma unroll 1
		for (unsigned width = 0; width < PACK_WIDTHS; width++) {
			struct elements e = elements_of(width);
			uint32_t group[PACK_WORDS];

			load_group(group, s->tiles[warp], e, lane);
			unsigned head = head_of(group, e), words = sum(words_of(head, e));

			s->heads[width][t * WARP + lane] = (uint16_t)head;
			if (lane == 0) {
				s->words[width][t] = words;
				atomicAdd(&s->costs[width], words);
			}
		}
	}
	__syncthreads();
	for (unsigned width = PACK_WIDTHS - 1; width-- > 0;)
		best = s->costs[width] < s->costs[best] ? width : best;
	return best;
}

/* Swaps squares of bits beside the diagonal, `by` bits wide; mask: the bits of one of them. */
template <unsigned by> INLINE void swap_bits(uint32_t *words, uint32_t mask)
{
#pragma unroll
	for (unsigned i = 0; i < PACK_WORDS; i++) {
		if (i & by)
			continue;
		uint32_t a = words[i], b = words[i + by];

		words[i] = (a & mask) | (b << by & ~mask);
		words[i + by] = (a >> by & mask) | (b & ~mask);
	}
}

/* Turns a square of bits: word N gets bit N of each word. */
INLINE void transpose(uint32_t *words)
{
#pragma unroll
	for (unsigned i = 0; i < 16; i++) {
		uint32_t a = words[i], b = words[i + 16];

		words[i] = __byte_perm(a, b, 0x5410);
		words[i + 16] = __byte_perm(a, b, 0x7632);
	}
#pragma unroll
	for (unsigned i = 0; i < PACK_WORDS; i++) {
		if (i & 8)
			continue;
		uint32_t a = words[i], b = words[i + 8];

		words[i] = __byte_perm(a, b, 0x6240);
		words[i + 8] = __byte_perm(a, b, 0x7351);
	}
	swap_bits<4>(words, 0x0f0f0f0fu);
	swap_bits<2>(words, 0x33333333u);
	swap_bits<1>(words, 0x55555555u);
}

/* Subtracts the base from elements that are not zero, and writes a plane that tells which these are. */
INLINE void write_mask(uint32_t *to, uint32_t *group, unsigned base, const struct elements &e)
{
	uint32_t part[4] = {0, 0, 0, 0}; /* byte N of part M: the N-th bytes of words 8 * M to 8 * M + 7 */

#pragma unroll
	for (unsigned i = 0; i < PACK_WORDS; i++) {
		uint32_t there = nonzero(group[i], e);

		group[i] -= base * there;
		part[i / 8] |= there << i % 8;
	}
#pragma unroll
	for (unsigned byte = 0; byte < 4; byte++) {
		uint32_t low = __byte_perm(part[0], part[1], byte | (4 + byte) << 4);
		uint32_t high = __byte_perm(part[2], part[3], byte | (4 + byte) << 4);

		if (e.lowest >> 8 * byte & 1)
			to[8 * byte / e.bits] = __byte_perm(low, high, 0x5410);
	}
}

/* The planes of this lane's group. */
INLINE void write_planes(uint32_t *to, uint32_t *group, unsigned head, const struct elements &e)
{
	unsigned base = head & 0xff, planes = planes_of(head), low = low_of(head >> 14);
	uint32_t stored = (planes < 32 ? (1u << planes) - 1 : ~0u) << low; /* bits of an element */

	if (is_masked(head)) {
		write_mask(to, group, base, e);
		to += 1u << e.shift;
	} else {
#pragma unroll
		for (unsigned i = 0; i < PACK_WORDS; i++)
			group[i] -= base * e.lowest;
	}
	stored *= e.lowest >> (e.bits - 8);
	transpose(group);
#pragma unroll
	for (unsigned byte = 0; byte < 4; byte++) {
		int first = (int)((8 * byte % e.bits - low) << e.shift) + (int)(8 * byte / e.bits);

#pragma unroll
		for (unsigned i = 0; i < 8; i++)
			if (stored >> (8 * byte + i) & 1)
				to[first + (int)(i << e.shift)] = group[8 * byte + i];
	}
}

/* Whole lines at once. */
INLINE void store_words(uint64_t to, const uint32_t *from, unsigned count, unsigned lane)
{
	int i = (int)lane - (int)(to % PACK_LINE / 4);

#pragma unroll 4
	for (; i < (int)count; i += WARP)
		if (i >= 0)
			*at<uint32_t>(to + 4 * i) = from[i];
}

INLINE void write_tiles(struct packing *s, uint64_t to, uint64_t from, unsigned length, unsigned width, unsigned warp,
			unsigned lane)
{
	struct elements e = elements_of(width);
	uint2 *tile = s->tiles[warp];
	uint32_t *code = (uint32_t *)tile;
	unsigned before = 0, start = 0;

#pragma unroll 1
	for (unsigned t = warp; t * PACK_TILE < length; t += PACK_WARPS) {
		unsigned head = s->heads[width][t * WARP + lane], words = words_of(head, e), place = sum_to(words, lane);
		uint32_t group[PACK_WORDS];

		for (; before < t; before++)
			start += s->words[width][before];
		load_tile(tile, from, t * PACK_TILE, length, lane);
		load_group(group, tile, e, lane);
		__syncwarp();
		write_planes(code + place - words, group, head, e);
		__syncwarp();
		store_words(to + 4 * start, code, s->words[width][t], lane);
	}
}

/* By all threads of the CTA, whole lines at once; from is a multiple of 8, to of 4. */
INLINE void copy_words(uint64_t to, uint64_t from, unsigned length)
{
	unsigned whole = length & ~3u;

#pragma unroll 4
	for (int i = 4 * (int)threadIdx.x - (int)(to % PACK_LINE); i < (int)whole; i += 4 * TT_PACK_THREADS)
		if (i >= 0)
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
	unsigned width = plan(s, from, length, warp, lane);
	unsigned size = PACK_HEADER + 2 * pairs * PACK_HEAD + 4 * s->costs[width];
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
		*at<uint32_t>(out + 4 * i) = s->heads[width][2 * i] | (uint32_t)s->heads[width][2 * i + 1] << 16;
	write_tiles(s, out + 2 * pairs * PACK_HEAD, from, length, width, warp, lane);
}

#define PACK_KERNEL extern "C" __global__ void __launch_bounds__(TT_PACK_THREADS, TT_PACK_CTAS_PER_SM)

#endif
