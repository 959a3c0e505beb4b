/*
 * XXH3-64 with seed 0: the digest of blocks, regions, headers and module images.
 *
 * One source for the host (C11) and for the capture kernels (CUDA device code). The result is the XXH3_64bits value
 * of the xxHash specification for every length, and never depends on the alignment of the data. Words are read in
 * memory order: little-endian machines only.
 */
#ifndef TT_UTIL_XXH3_H
#define TT_UTIL_XXH3_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) && !defined(__CUDACC__)
#include <emmintrin.h>
#endif

#ifdef __CUDACC__
#define XXH3_CALL static __host__ __device__ __forceinline__
#define XXH3_ROLLED _Pragma("unroll 1") /* device code reads single bytes: unrolled, it grows large */
#else
#define XXH3_CALL static inline
#define XXH3_ROLLED
#endif

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "little-endian machines only"
#endif

#define XXH3_PRIME32_1 0x9e3779b1ull
#define XXH3_PRIME32_2 0x85ebca77ull
#define XXH3_PRIME32_3 0xc2b2ae3dull
#define XXH3_PRIME64_1 0x9e3779b185ebca87ull
#define XXH3_PRIME64_2 0xc2b2ae3d27d4eb4full
#define XXH3_PRIME64_3 0x165667b19e3779f9ull
#define XXH3_PRIME64_4 0x85ebca77c2b2ae63ull
#define XXH3_PRIME64_5 0x27d4eb2f165667c5ull
#define XXH3_PRIME_MX1 0x165667919e3779f9ull
#define XXH3_PRIME_MX2 0x9fb21c651e98df25ull

#define XXH3_STRIPE 64                    /* bytes that one step mixes into 8 accumulators */
#define XXH3_ROUND 1024                   /* bytes between two scrambles */
#define XXH3_LONG 240                     /* longest input that uses no accumulators */
#define XXH3_SECRET_SCRAMBLE 128          /* byte offsets into the secret */
#define XXH3_SECRET_LAST_STRIPE 121
#define XXH3_SECRET_MERGE 11

/* The 192-byte default secret as little-endian words. */
#define XXH3_SECRET_WORDS \
	0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull, 0x78e5c0cc4ee679cbull, \
		0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull, 0xcb00c391bb52283cull, \
		0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull, 0x3f349ce33f76faa8ull, \
		0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull, 0xc3ebd33483acc5eaull, \
		0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull, 0xfca1477d58be162bull, \
		0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull

/* The 8 secret bytes from byte offset `at`, which need not be a multiple of 8. */
XXH3_CALL uint64_t xxh3_secret(unsigned at)
{
	static const uint64_t words[24] = {XXH3_SECRET_WORDS};
	unsigned word = at / 8, shift = at % 8 * 8;

	if (shift == 0)
		return words[word];
	return words[word] >> shift | words[word + 1] << (64 - shift);
}

XXH3_CALL uint32_t xxh3_read32(const uint8_t *p)
{
#ifdef __CUDA_ARCH__
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
#else
	uint32_t value;

	memcpy(&value, p, sizeof value);
	return value;
#endif
}

XXH3_CALL uint64_t xxh3_read64(const uint8_t *p)
{
#ifdef __CUDA_ARCH__
	return xxh3_read32(p) | (uint64_t)xxh3_read32(p + 4) << 32;
#else
	uint64_t value;

	memcpy(&value, p, sizeof value);
	return value;
#endif
}

/* The xor of both halves of the 128-bit product. */
XXH3_CALL uint64_t xxh3_fold(uint64_t a, uint64_t b)
{
#ifdef __CUDA_ARCH__
	return a * b ^ __umul64hi(a, b);
#else
	__extension__ typedef unsigned __int128 wide;
	wide product = (wide)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
#endif
}

XXH3_CALL uint64_t xxh3_rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

XXH3_CALL uint64_t xxh3_swap(uint64_t x)
{
	x = (x & 0x00ff00ff00ff00ffull) << 8 | (x >> 8 & 0x00ff00ff00ff00ffull);
	x = (x & 0x0000ffff0000ffffull) << 16 | (x >> 16 & 0x0000ffff0000ffffull);
	return xxh3_rotate(x, 32);
}

XXH3_CALL uint64_t xxh3_avalanche(uint64_t x)
{
	x = (x ^ x >> 37) * XXH3_PRIME_MX1;
	return x ^ x >> 32;
}

/* The final mix of the shortest inputs, from XXH64. */
XXH3_CALL uint64_t xxh3_avalanche_short(uint64_t x)
{
	x = (x ^ x >> 33) * XXH3_PRIME64_2;
	x = (x ^ x >> 29) * XXH3_PRIME64_3;
	return x ^ x >> 32;
}

/* The addend of one 8-byte word to its own accumulator. */
XXH3_CALL uint64_t xxh3_product(uint64_t word, uint64_t secret)
{
	uint64_t key = word ^ secret;

	return (uint64_t)(uint32_t)key * (uint32_t)(key >> 32);
}

XXH3_CALL uint64_t xxh3_scramble(uint64_t accumulator, uint64_t secret)
{
	return (accumulator ^ accumulator >> 47 ^ secret) * XXH3_PRIME32_1;
}

/* 0 to 16 bytes. */
XXH3_CALL uint64_t xxh3_tiny(const uint8_t *p, unsigned n)
{
	uint64_t a, b, x;

	if (n > 8) {
		a = xxh3_secret(24) ^ xxh3_secret(32) ^ xxh3_read64(p);
		b = xxh3_secret(40) ^ xxh3_secret(48) ^ xxh3_read64(p + n - 8);
		return xxh3_avalanche(n + xxh3_swap(a) + b + xxh3_fold(a, b));
	}
	if (n >= 4) {
		x = xxh3_read32(p + n - 4) | (uint64_t)xxh3_read32(p) << 32;
		x ^= xxh3_secret(8) ^ xxh3_secret(16);
		x ^= xxh3_rotate(x, 49) ^ xxh3_rotate(x, 24);
		x *= XXH3_PRIME_MX2;
		x ^= (x >> 35) + n;
		x *= XXH3_PRIME_MX2;
		return x ^ x >> 28;
	}
	if (n > 0) {
		x = p[n - 1] | n << 8 | (uint32_t)p[0] << 16 | (uint32_t)p[n / 2] << 24;
		return xxh3_avalanche_short(x ^ (uint32_t)(xxh3_secret(0) ^ xxh3_secret(4)));
	}
	return xxh3_avalanche_short(xxh3_secret(56) ^ xxh3_secret(64));
}

XXH3_CALL uint64_t xxh3_mix16(const uint8_t *p, unsigned secret_at)
{
	return xxh3_fold(xxh3_read64(p) ^ xxh3_secret(secret_at), xxh3_read64(p + 8) ^ xxh3_secret(secret_at + 8));
}

/* 17 to 240 bytes. */
XXH3_CALL uint64_t xxh3_medium(const uint8_t *p, unsigned n)
{
	uint64_t x = n * XXH3_PRIME64_1;

	if (n <= 128) {
		XXH3_ROLLED
		for (unsigned i = 0; i <= (n - 1) / 32; i++) {
			x += xxh3_mix16(p + 16 * i, 32 * i);
			x += xxh3_mix16(p + n - 16 * (i + 1), 32 * i + 16);
		}
		return xxh3_avalanche(x);
	}
	XXH3_ROLLED
	for (unsigned i = 0; i < 8; i++)
		x += xxh3_mix16(p + 16 * i, 16 * i);
	x = xxh3_avalanche(x);
	XXH3_ROLLED
	for (unsigned i = 8; i < n / 16; i++)
		x += xxh3_mix16(p + 16 * i, 16 * (i - 8) + 3);
	return xxh3_avalanche(x + xxh3_mix16(p + n - 16, 119));
}

/* 0 to 240 bytes. */
XXH3_CALL uint64_t xxh3_short(const uint8_t *p, unsigned n)
{
	return n <= 16 ? xxh3_tiny(p, n) : xxh3_medium(p, n);
}

/* The start value of accumulator i. */
XXH3_CALL uint64_t xxh3_start(unsigned i)
{
	static const uint64_t start[8] = {XXH3_PRIME32_3, XXH3_PRIME64_1, XXH3_PRIME64_2, XXH3_PRIME64_3,
					  XXH3_PRIME64_4, XXH3_PRIME32_2, XXH3_PRIME64_5, XXH3_PRIME32_1};

	return start[i];
}

XXH3_CALL void xxh3_stripe(uint64_t accumulator[8], const uint8_t *p, const uint64_t secret[8])
{
#if defined(__SSE2__) && !defined(__CUDACC__)
	for (unsigned i = 0; i < 8; i += 2) {
		__m128i word = _mm_loadu_si128((const __m128i *)(p + 8 * i));
		__m128i key = _mm_xor_si128(word, _mm_loadu_si128((const __m128i *)(secret + i)));
		__m128i product = _mm_mul_epu32(key, _mm_srli_epi64(key, 32));
		__m128i sum = _mm_add_epi64(product, _mm_shuffle_epi32(word, _MM_SHUFFLE(1, 0, 3, 2)));

		sum = _mm_add_epi64(sum, _mm_loadu_si128((const __m128i *)(accumulator + i)));
		_mm_storeu_si128((__m128i *)(accumulator + i), sum);
	}
#else
	for (unsigned i = 0; i < 8; i++) {
		uint64_t word = xxh3_read64(p + 8 * i);

		accumulator[i ^ 1] += word;
		accumulator[i] += xxh3_product(word, secret[i]);
	}
#endif
}

XXH3_CALL uint64_t xxh3_64(const void *data, size_t length)
{
	static const uint64_t secret[24] = {XXH3_SECRET_WORDS};
	const uint8_t *p = (const uint8_t *)data, *end = p + length;
	uint64_t accumulator[8], last_secret[8], x = length * XXH3_PRIME64_1;

	if (length <= XXH3_LONG)
		return xxh3_short(p, (unsigned)length);
	for (unsigned i = 0; i < 8; i++) {
		accumulator[i] = xxh3_start(i);
		last_secret[i] = xxh3_secret(XXH3_SECRET_LAST_STRIPE + 8 * i);
	}
	for (; end - p > XXH3_ROUND; p += XXH3_ROUND) {
		for (unsigned s = 0; s < XXH3_ROUND / XXH3_STRIPE; s++)
			xxh3_stripe(accumulator, p + XXH3_STRIPE * s, secret + s);
		for (unsigned i = 0; i < 8; i++)
			accumulator[i] = xxh3_scramble(accumulator[i], secret[XXH3_SECRET_SCRAMBLE / 8 + i]);
	}
	for (unsigned s = 0; s < (unsigned)(end - p - 1) / XXH3_STRIPE; s++)
		xxh3_stripe(accumulator, p + XXH3_STRIPE * s, secret + s);
	xxh3_stripe(accumulator, end - XXH3_STRIPE, last_secret);
	for (unsigned i = 0; i < 8; i += 2)
		x += xxh3_fold(accumulator[i] ^ xxh3_secret(XXH3_SECRET_MERGE + 8 * i),
			       accumulator[i + 1] ^ xxh3_secret(XXH3_SECRET_MERGE + 8 * i + 8));
	return xxh3_avalanche(x);
}

#endif
