/*
 * XXH3-64 of one block by all warps of a CTA.
 *
 * XXH3's accumulators are sums within a round of 1024 bytes; only the scramble between rounds is sequential. So all
 * warps of the CTA sum the rounds of a block in parallel, into sums[round][accumulator]. Then one warp does the
 * scrambles. While it reads, the CTA also copies the block if asked to.
 */
#ifndef TT_DIGEST_CUH
#define TT_DIGEST_CUH

#include "capture/device.cuh"
#include "util/xxh3.h"

#define BATCH_ROUNDS 4 /* rounds that a warp reads at once: 8 loads of 16 bytes per lane */
#define BATCH (BATCH_ROUNDS * XXH3_ROUND)
#define BLOCK_ROUNDS (TT_BLOCK_SIZE / XXH3_ROUND)
#define WARP_ROUNDS (2 * BLOCK_ROUNDS / TT_DIGEST_WARPS) /* room for sums of a warp that works by itself */
#define GROUP_LANES 8 /* of a warp that has several blocks at once */
#define GROUP_BYTES 8192 /* most bytes of such a block */
#define GROUP_LOADS (XXH3_ROUND / XXH3_STRIPE / 2)

/* Constants of the CTA, in shared memory because registers are short. */
struct constants {
	uint64_t stripes[2][GROUP_LOADS + 3][2]; /* secrets of 16 bytes from word 0 on, and from word 1 on */
	uint64_t last_stripe[8];
	uint64_t start[8], scramble[8], merge[8]; /* by accumulator */
};

/* The work for one block; one thread prepares it for the CTA. */
struct job {
	uint64_t data, copy; /* copy: destination of the contents, or 0 */
	unsigned length, block, region;
	uint64_t stored; /* address of the digest last stored */
};

/* Every warp of the CTA writes the same values. */
INLINE void prepare_constants(struct constants *constants, unsigned lane)
{
	if (lane < GROUP_LOADS + 3)
		for (unsigned i = 0; i < 4; i++)
			constants->stripes[i / 2][lane][i % 2] = xxh3_secret(8 * (2 * lane + i / 2 + i % 2));
	if (lane < 8) {
		constants->start[lane] = xxh3_start(lane);
		constants->scramble[lane] = xxh3_secret(XXH3_SECRET_SCRAMBLE + 8 * lane);
		constants->merge[lane] = xxh3_secret(XXH3_SECRET_MERGE + 8 * lane);
		constants->last_stripe[lane] = xxh3_secret(XXH3_SECRET_LAST_STRIPE + 8 * lane);
	}
}

/* The addends of 16 bytes to their two accumulators, the even and the odd one. */
INLINE void mix16(ulonglong2 data, const uint64_t secret[2], uint64_t *even, uint64_t *odd)
{
	*even += xxh3_product(data.x, secret[0]) + data.y;
	*odd += xxh3_product(data.y, secret[1]) + data.x;
}

/* Sums four whole rounds, 8 lanes each: a lane sums two accumulators over every other stripe of its round. */
INLINE void sum_batch(const struct job &job, unsigned offset, const struct constants &constants, uint64_t (*sums)[8],
                      unsigned lane)
{
	unsigned round = lane / GROUP_LANES, second = lane / 4 % 2, quarter = lane % 4;
	uint64_t at = offset + round * XXH3_ROUND + second * XXH3_STRIPE + quarter * 16, data = job.data + at;
	const uint64_t (*secrets)[2] = constants.stripes[second] + quarter, *end = secrets[GROUP_LOADS - 1];
	uint64_t even = 0, odd = 0;
	ulonglong2 v[GROUP_LOADS];

#pragma unroll
	for (int i = 0; i < GROUP_LOADS; i++)
		v[i] = load16(data + i * (2 * XXH3_STRIPE));
	if (job.copy) {
#pragma unroll
		for (int i = 0; i < GROUP_LOADS; i++)
			store16(job.copy + at + i * (2 * XXH3_STRIPE), v[i]);
	}
	if (round == BATCH_ROUNDS - 1 && second && offset + BATCH == job.length)
		end = constants.last_stripe + 2 * quarter;
#pragma unroll
	for (int i = 0; i < GROUP_LOADS; i++)
		mix16(v[i], i < GROUP_LOADS - 1 ? secrets[i] : end, &even, &odd);
	even += across(even, 4);
	odd += across(odd, 4);
	if (!second) {
		sums[round][2 * quarter] = even;
		sums[round][2 * quarter + 1] = odd;
	}
}

/* Stores the bytes of a value, which is at offset at_offset, from offset `first` on. */
INLINE void store_from(uint64_t to, unsigned at_offset, ulonglong2 v, unsigned first)
{
#pragma unroll 1
	for (unsigned i = 0; i < 16; i++)
		if (at_offset + i >= first)
			*at<uint8_t>(to + at_offset + i) = (uint8_t)((i < 8 ? v.x : v.y) >> i % 8 * 8);
}

/* Sums one round of any alignment; the block's last round may have any length. */
INLINE void sum_round(const struct job &job, unsigned offset, uint64_t sums[8], unsigned lane)
{
	unsigned left = job.length - offset;
	bool ends = left <= XXH3_ROUND;
	unsigned stripes = ends ? (left - 1) / XXH3_STRIPE : XXH3_ROUND / XXH3_STRIPE;
	uint64_t even = 0, odd = 0;

#pragma unroll 1
	for (unsigned i = 0; i < 3; i++) {
		unsigned stripe = lane / 4 + 8 * i, secret_at = 8 * stripe + lane % 4 * 16;
		unsigned from = offset + stripe * XXH3_STRIPE + lane % 4 * 16;

		if (i == 2) {
			if (!ends || lane >= 4)
				break;
			secret_at = XXH3_SECRET_LAST_STRIPE + lane * 16;
			from = job.length - XXH3_STRIPE + lane * 16;
		} else if (stripe >= stripes) {
			continue;
		}
		uint64_t secret[2] = { xxh3_secret(secret_at), xxh3_secret(secret_at + 8) };
		ulonglong2 v = load16_any(job.data + from);

		mix16(v, secret, &even, &odd);
		if (job.copy && i < 2)
			store16(job.copy + from, v);
		else if (job.copy)
			store_from(job.copy, from, v, offset + stripes * XXH3_STRIPE);
	}
	__syncwarp();
#pragma unroll
	for (unsigned mask = 16; mask >= 4; mask /= 2) {
		even += across(even, mask);
		odd += across(odd, mask);
	}
	if (lane < 4) {
		sums[2 * lane] = even;
		sums[2 * lane + 1] = odd;
	}
}

/*
 * By several warps, this one being `warp`: the sums of rounds [first, end) of a block of more than XXH3_LONG bytes, or
 * to its end. first: a multiple of BATCH_ROUNDS.
 */
INLINE void sum_rounds(const struct job &job, unsigned first, unsigned end, const struct constants &constants,
		       uint64_t (*sums)[8], unsigned warp, unsigned warps, unsigned lane)
{
	unsigned batches = job.data % 16 == 0 ? min(end * XXH3_ROUND, job.length) / BATCH : 0;
	unsigned i = first / BATCH_ROUNDS + warp;

#pragma unroll 1
	for (; i < batches; i += warps)
		sum_batch(job, i * BATCH, constants, sums + i * BATCH_ROUNDS - first, lane);
#pragma unroll 1
	for (i = max(batches * BATCH_ROUNDS, first) + warp; i < end && i * XXH3_ROUND < job.length; i += warps)
		sum_round(job, i * XXH3_ROUND, sums[i - first], lane);
}

/* By every warp of the CTA: the sums of a block of more than XXH3_LONG bytes. */
INLINE void sum_block(const struct job &job, const struct constants &constants, uint64_t (*sums)[8], unsigned warp,
                      unsigned lane)
{
	sum_rounds(job, 0, BLOCK_ROUNDS, constants, sums, warp, TT_DIGEST_WARPS, lane);
}

/* Puts the sums of whole rounds into an accumulator. */
INLINE uint64_t take_rounds(uint64_t accumulator, unsigned rounds, const struct constants &constants, const uint64_t (*sums)[8],
			    unsigned i)
{
	uint64_t secret = constants.scramble[i];

#pragma unroll 4
	for (unsigned round = 0; round < rounds; round++)
		accumulator = xxh3_scramble(accumulator + sums[round][i], secret);
	return accumulator;
}

/* By 8 lanes for a block: its digest, in each of them, from its 8 accumulators. */
INLINE uint64_t merge(uint64_t accumulator, unsigned length, const struct constants &constants, unsigned i)
{
	accumulator ^= constants.merge[i];
	uint64_t folded = xxh3_fold(accumulator, across(accumulator, 1));
	folded += across(folded, 2);
	folded += across(folded, 4);
	return xxh3_avalanche(length * XXH3_PRIME64_1 + folded);
}

/* By 8 lanes for a block: the digest, in each of them, from the sums. All lanes of the warp take part. */
INLINE uint64_t finish_block(unsigned length, const struct constants &constants, const uint64_t (*sums)[8], unsigned lane)
{
	unsigned i = lane % 8, last = (length - 1) / XXH3_ROUND;
	uint64_t accumulator = take_rounds(constants.start[i], last, constants, sums, i);

	return merge(accumulator + sums[last][i], length, constants, i);
}

/* Whether digest_group takes a block. */
INLINE bool fits_group(uint64_t data, unsigned length)
{
	return data % 16 == 0 && length > XXH3_LONG && length <= GROUP_BYTES;
}

/*
 * By 8 lanes for each of up to four blocks at once: the digest, in each of them. A lane sums two accumulators over every
 * other stripe of a round. length: 0 if these lanes have no block.
 */
INLINE uint64_t digest_group(const struct job &job, unsigned length, const struct constants &constants, unsigned lane)
{
	unsigned second = lane / 4 % 2, quarter = lane % 4, left = length;
	uint64_t data = job.data + second * XXH3_STRIPE + quarter * 16, copy = job.copy + second * XXH3_STRIPE + quarter * 16;
	uint64_t accumulators[2] = { constants.start[2 * quarter], constants.start[2 * quarter + 1] };
	const uint64_t (*secrets)[2] = constants.stripes[second] + quarter;

#pragma unroll 1
	while (__any_sync(ALL_LANES, left)) {
		ulonglong2 v[GROUP_LOADS];
		uint64_t sums[2] = { 0, 0 };
		bool last = left <= XXH3_ROUND;

		if (__all_sync(ALL_LANES, left >= XXH3_ROUND)) {
			const uint64_t *end = last && second ? constants.last_stripe + 2 * quarter : secrets[GROUP_LOADS - 1];

#pragma unroll
			for (int i = 0; i < GROUP_LOADS; i++)
				v[i] = load16(data + i * (2 * XXH3_STRIPE));
#pragma unroll
			for (int i = 0; i < GROUP_LOADS; i++) {
				mix16(v[i], i < GROUP_LOADS - 1 ? secrets[i] : end, &sums[0], &sums[1]);
				if (job.copy)
					store16(copy + i * (2 * XXH3_STRIPE), v[i]);
			}
		} else {
			unsigned whole = !last ? XXH3_ROUND : left ? (left - 1) & ~(XXH3_STRIPE - 1u) : 0, at = second * XXH3_STRIPE;

#pragma unroll
			for (int i = 0; i < GROUP_LOADS; i++)
				if (at + i * (2 * XXH3_STRIPE) < whole)
					v[i] = load16(data + i * (2 * XXH3_STRIPE));
			if (last && left && !second) {
				ulonglong2 end = load16_any(job.data + length - XXH3_STRIPE + quarter * 16);

				mix16(end, constants.last_stripe + 2 * quarter, &sums[0], &sums[1]);
				if (job.copy)
					store_from(job.copy, length - XXH3_STRIPE + quarter * 16, end, (length - 1) & ~(XXH3_STRIPE - 1u));
			}
#pragma unroll
			for (int i = 0; i < GROUP_LOADS; i++)
				if (at + i * (2 * XXH3_STRIPE) < whole) {
					mix16(v[i], secrets[i], &sums[0], &sums[1]);
					if (job.copy)
						store16(copy + i * (2 * XXH3_STRIPE), v[i]);
				}
		}
#pragma unroll
		for (int k = 0; k < 2; k++) {
			accumulators[k] += sums[k] + across(sums[k], 4);
			if (!last)
				accumulators[k] = xxh3_scramble(accumulators[k], constants.scramble[2 * quarter + k]);
		}
		data += XXH3_ROUND;
		copy += XXH3_ROUND;
		left = last ? 0 : left - XXH3_ROUND;
	}
	uint64_t folded = xxh3_fold(accumulators[0] ^ constants.merge[2 * quarter],
	                            accumulators[1] ^ constants.merge[2 * quarter + 1]);
	folded += across(folded, 1);
	folded += across(folded, 2);
	return xxh3_avalanche(length * XXH3_PRIME64_1 + folded);
}

/* By one warp: the digest of a block that was summed or is short; a short block is copied here first. */
INLINE uint64_t finish_job(const struct job &job, const struct constants &constants, const uint64_t (*sums)[8],
                           unsigned lane)
{
	if (job.length > XXH3_LONG)
		return finish_block(job.length, constants, sums, lane);
	if (!job.copy)
		return xxh3_short(at<uint8_t>(job.data), job.length);
	copy_bytes(job.copy, job.data, lane, job.length, WARP);
	__syncwarp();
	return xxh3_short(at<uint8_t>(job.copy), job.length);
}

#endif
