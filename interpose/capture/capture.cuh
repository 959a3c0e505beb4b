/*
 * The capture kernels: hash every block, copy the changed ones into the ring. kernels.h says how the host uses
 * them.
 *
 * Invariant: an epoch reaches the ring as a whole chunk or not at all, and a block's stored digest changes only
 * together with its chunk. Nothing outside [base, base + size) of a region is read, whatever its alignment.
 */
#include "capture/device.cuh"
#include "capture/digest.cuh"
#include "capture/kernels.h"

#define CURSOR_SHIFT 40 /* of the count in tt_capture_control.cursor */

/* ---- position of a chunk ---- */

struct place {
	uint64_t head, at; /* ring position of the chunk, and its offset in the ring */
	uint64_t wrap;     /* bytes before it that a wrap header fills */
	uint64_t payload;  /* offset of the payload in the chunk */
	uint64_t size;
	bool fits;
};

/* All CTAs of a launch compute the same result: the head in the control block moves only at its end. */
INLINE struct place place_chunk(const struct tt_capture_params &p, uint64_t count, uint64_t bytes)
{
	const struct tt_capture_control *control = at<struct tt_capture_control>(p.control);
	struct place place;

	place.head = control->head;
	place.at = control->head_at;
	place.payload = tt_chunk_payload(count);
	place.size = tt_chunk_size(count, bytes);
	place.wrap = place.size > p.ring_size - place.at ? p.ring_size - place.at : 0;
	place.fits = place.wrap + place.size <= p.ring_size - (place.head - p.tail);
	if (place.wrap)
		place.at = 0;
	place.head += place.wrap;
	return place;
}

INLINE void write_header(const struct tt_capture_params &p, uint64_t offset, struct tt_chunk header)
{
	uint64_t *to = at<uint64_t>(p.ring + offset);

	to[0] = header.magic | (uint64_t)header.kind << 32;
	to[1] = header.epoch | (uint64_t)header.part << 32;
	to[2] = header.position;
	to[3] = header.size;
	to[4] = header.count;
	to[5] = header.payload;
	to[6] = header.entries_check;
	to[7] = tt_chunk_mix(&header);
}

INLINE void write_entry(uint64_t to, const struct tt_chunk_entry &entry)
{
	store16(to, make_ulonglong2(entry.digest, entry.offset));
	store16(to + 16, make_ulonglong2(entry.region | (uint64_t)entry.block << 32,
	                                 entry.length | (uint64_t)entry.more << 32));
}

INLINE void write_status(const struct tt_capture_params &p, const struct place &place, uint64_t count, uint64_t bytes,
                         uint64_t check, uint32_t flags)
{
	struct tt_capture_status *status = at<struct tt_capture_status>(p.status);

	if (flags & TT_CAPTURE_FINAL && p.released) { /* at once: work of the program waits for it */
		__threadfence(); /* which may be the next epoch, in a graph: it finds the control block ready */
		*(volatile uint32_t *)at<uint32_t>(p.released) = p.number;
	}
	status->epoch = p.epoch;
	status->part = p.part;
	status->position = place.head;
	status->size = place.size;
	status->count = count;
	status->payload = bytes;
	status->entries_check = check;
	status->flags = flags;
	status->reserved = 0;
	__threadfence_system();
	*(volatile uint64_t *)&status->sequence = p.sequence;
}

/* The host cancelled this epoch and all before it: their memory may be unmapped. */
INLINE bool cancelled(const struct tt_capture_params &p)
{
	uint32_t until = *(volatile uint32_t *)&at<struct tt_capture_control>(p.control)->cancelled;

	return (int32_t)(until - p.epoch) > 0;
}

/*
 * True in one thread of the launch, in the last CTA to finish. It counts all of them: one that starts after the status is
 * written would find what the next epoch does.
 */
INLINE bool last_to_finish(struct tt_capture_control *control, uint64_t check)
{
	if (threadIdx.x != 0)
		return false;
	if (check)
		add(&control->entries_check, check);
	__threadfence();
	if (atomicAdd(&control->done, 1u) != gridDim.x - 1)
		return false;
	__threadfence();
	control->done = 0;
	control->next = 0;
	return true;
}

/* The chunk's contents are complete: writes its header and moves the head past it. */
INLINE uint64_t commit_chunk(const struct tt_capture_params &p, const struct place &place, uint64_t count)
{
	struct tt_capture_control *control = at<struct tt_capture_control>(p.control);
	uint64_t check = *(volatile uint64_t *)&control->entries_check, end = place.at + place.size;
	struct tt_chunk header = { TT_CHUNK_MAGIC, TT_CHUNK_WRAP, p.epoch, p.part, place.head - place.wrap,
		                       place.wrap, 0, sizeof header, 0, 0 };

	if (place.wrap)
		write_header(p, p.ring_size - place.wrap, header);
	header.kind = TT_CHUNK_EPOCH;
	header.position = place.head;
	header.size = place.size;
	header.count = count;
	header.payload = place.payload;
	header.entries_check = check;
	write_header(p, place.at, header);
	control->entries_check = 0;
	control->head = place.head + place.size;
	control->head_at = end == p.ring_size ? 0 : end;
	return check;
}

/* ---- the list ---- */

/* The entries of the list that a launch takes: [first, last). */
struct range {
	unsigned count, first, last; /* count: of the whole list */
	uint64_t from, bytes;        /* of its contents */
	uint64_t total;              /* of all contents */
};

INLINE struct range find_range(const struct tt_capture_params &p)
{
	const struct tt_chunk_entry *list = at<struct tt_chunk_entry>(p.scratch);
	uint64_t cursor = at<struct tt_capture_control>(p.control)->cursor;
	struct range r;

	r.total = (cursor & ((1ull << CURSOR_SHIFT) - 1)) * TT_CHUNK_ALIGN;
	r.count = cursor >> CURSOR_SHIFT;
	r.first = min(p.first, r.count);
	r.last = min(p.last, r.count);
	r.from = r.first < r.count ? list[r.first].offset : r.total;
	r.bytes = (r.last < r.count ? list[r.last].offset : r.total) - r.from;
	return r;
}

INLINE bool discarded(const struct tt_capture_params &p)
{
	return p.flags & TT_CAPTURE_DISCARD || cancelled(p);
}

/*
 * Ends a launch that has gathered its range of the list, in one thread. check: of the entries, in the control block. The
 * list stays if the chunk does not fit.
 */
INLINE void end_range(const struct tt_capture_params &p)
{
	struct tt_capture_control *control = at<struct tt_capture_control>(p.control);
	struct range r = find_range(p);
	struct place place = place_chunk(p, r.last - r.first, r.bytes);
	bool discard = discarded(p), ends = discard || (place.fits && r.last == r.count);
	uint64_t check = place.fits && !discard ? commit_chunk(p, place, r.last - r.first) : 0;

	control->entries_check = 0; /* if it was cancelled, some CTAs may have copied entries */
	if (ends) {
		control->cursor = 0;
		control->listed = 0;
	}
	if (place.fits && !discard)
		write_status(p, place, r.last - r.first, r.bytes, check, ends ? TT_CAPTURE_FINAL : 0);
	else
		write_status(p, place, r.count, r.total, 0,
		             discard ? TT_CAPTURE_DISCARDED | TT_CAPTURE_FINAL : TT_CAPTURE_OVERFLOW);
}

/* ---- digests ---- */

/*
 * The region that holds a block, at or after index i. None is empty, so it is at most as many regions further as the
 * block is. Where each has one block, that is the answer: a search takes longer than to read such a block.
 */
INLINE unsigned find_region(const struct tt_capture_region *regions, unsigned count, unsigned i, unsigned block)
{
	unsigned last = min(count - 1, i + (block - regions[i].first_block));

	if (regions[last].first_block <= block)
		return last;
	if (regions[i + 1].first_block > block)
		return i;
	for (i++; last - i > 1;) {
		unsigned middle = i + (last - i) / 2;

		if (regions[middle].first_block <= block)
			i = middle;
		else
			last = middle;
	}
	return i;
}

INLINE void prepare_job(struct job *job, const struct tt_capture_params &p, unsigned region, unsigned b,
                        uint64_t payload)
{
	const struct tt_capture_region &r = at<struct tt_capture_region>(p.regions)[region];
	unsigned block = b - r.first_block;
	uint64_t offset = (uint64_t)block * TT_BLOCK_SIZE, left = r.size - offset;

	job->data = r.base + offset;
	job->copy = payload ? payload + r.payload + offset : 0;
	job->stored = r.digests + block * sizeof(uint64_t);
	job->length = left < TT_BLOCK_SIZE ? (unsigned)left : TT_BLOCK_SIZE;
	job->block = block;
	job->region = region;
}

/* Where a launch puts what it finds. */
struct found {
	uint64_t list;            /* entries */
	uint64_t payload, copies; /* of a full epoch that fits: its contents, and the same if it stores them */
	uint64_t check;           /* of the entries */
};

INLINE struct found begin_digest(const struct tt_capture_params &p)
{
	struct found found = { p.scratch, 0, 0, 0 };

	if (p.flags & TT_CAPTURE_FULL) {
		struct place place = place_chunk(p, p.blocks, p.payload);

		if (place.fits) {
			found.list = p.ring + place.at + sizeof(struct tt_chunk);
			found.payload = p.ring + place.at + place.payload;
			found.copies = p.flags & TT_CAPTURE_DIGESTS ? 0 : found.payload;
		}
	}
	return found;
}

/*
 * By one thread: lists a block if its digest is not the stored one. index: its place in a full epoch. Returns what it
 * adds to the check.
 */
INLINE uint64_t list_block(const struct tt_capture_params &p, const struct found &found, const struct job &job,
                           unsigned index, uint64_t digest, uint64_t before)
{
	const struct tt_capture_region &r = at<struct tt_capture_region>(p.regions)[job.region];
	bool full = p.flags & TT_CAPTURE_FULL, digests = p.flags & TT_CAPTURE_DIGESTS;

	if (!full && digest == before && !(r.flags & TT_CAPTURE_REGION_ALL))
		return 0;
	struct tt_chunk_entry entry = { digest, digests ? 0 : r.payload + (uint64_t)job.block * TT_BLOCK_SIZE, r.region,
		                            job.block, job.length, found.payload ? 0 : job.region };

	if (!full) {
		uint64_t units = digests ? 0 : tt_payload_size(job.length) / TT_CHUNK_ALIGN;
		uint64_t cursor = add(&at<struct tt_capture_control>(p.control)->cursor, 1ull << CURSOR_SHIFT | units);

		/* One addition gives both, so offsets grow with the index, without gaps. */
		index = cursor >> CURSOR_SHIFT;
		entry.offset = (cursor & ((1ull << CURSOR_SHIFT) - 1)) * TT_CHUNK_ALIGN;
	}
	write_entry(found.list + index * sizeof entry, entry);
	if (!found.payload)
		return 0;
	*at<uint64_t>(job.stored) = digest;
	return tt_entry_mix(&entry);
}

/* Ends an epoch that needs no gather, in the last CTA. */
INLINE void end_digest(const struct tt_capture_params &p, const struct found &found)
{
	struct tt_capture_control *control = at<struct tt_capture_control>(p.control);

	__syncthreads();
	if (!last_to_finish(control, found.check))
		return;
	if (!(p.flags & TT_CAPTURE_FULL)) {
		bool any = *(volatile uint64_t *)&control->cursor >> CURSOR_SHIFT;

		if (!any && (cancelled(p) || place_chunk(p, 0, 0).fits))
			end_range(p);
		else
			control->listed = p.epoch + 1;
		return;
	}
	struct place place = place_chunk(p, p.blocks, p.payload);
	uint64_t total = 0;

	if (cancelled(p)) {
		control->entries_check = 0;
		write_status(p, place, 0, 0, 0, TT_CAPTURE_DISCARDED | TT_CAPTURE_FINAL);
		return;
	}
	if (found.payload) {
		total = commit_chunk(p, place, p.blocks);
	} else {
		control->cursor = (uint64_t)p.blocks << CURSOR_SHIFT | p.payload / TT_CHUNK_ALIGN;
		control->listed = p.epoch + 1;
	}
	write_status(p, place, p.blocks, p.payload, total, found.payload ? TT_CAPTURE_FINAL : TT_CAPTURE_OVERFLOW);
}

/* A CTA for each block. */
INLINE void digest(const struct tt_capture_params &p)
{
	/*
	 * The first warp finishes a block, the other warps sum the next one, and the first thread of the last warp
	 * prepares the one after that: hence two buffers and four jobs.
	 */
	__shared__ __align__(16) struct constants constants;
	__shared__ uint64_t sums[2][BLOCK_ROUNDS][8];
	__shared__ struct job jobs[4];
	__shared__ unsigned blocks[4];
	__shared__ struct found found;
	unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, region = 0;
	struct tt_capture_control *control = at<struct tt_capture_control>(p.control);
	const struct tt_capture_region *regions = at<struct tt_capture_region>(p.regions);
	bool prepares = threadIdx.x == TT_DIGEST_THREADS - WARP;

	prepare_constants(&constants, lane);
	if (prepares) {
		found = begin_digest(p);
		blocks[0] = cancelled(p) ? p.blocks : blockIdx.x;
		if (blocks[0] < p.blocks) {
			region = find_region(regions, p.region_count, 0, blockIdx.x);
			prepare_job(&jobs[0], p, region, blockIdx.x, found.copies);
		}
	}
	__syncthreads();
	for (unsigned turn = 0; blocks[turn % 4] < p.blocks; turn++) {
		const struct job &job = jobs[turn % 4];

		if (prepares) {
			unsigned b = gridDim.x + atomicAdd(&control->next, 1u);
			blocks[(turn + 1) % 4] = b;
			if (b < p.blocks) {
				region = find_region(regions, p.region_count, region, b);
				prepare_job(&jobs[(turn + 1) % 4], p, region, b, found.copies);
			}
		}
		if (job.length > XXH3_LONG)
			sum_block(job, constants, sums[turn % 2], warp, lane);
		__syncthreads();
		if (warp != 0)
			continue;
		uint64_t before = p.flags & TT_CAPTURE_FULL ? 0 : *at<uint64_t>(job.stored);
		uint64_t digest = finish_job(job, constants, sums[turn % 2], lane);
		if (lane == 0)
			found.check += list_block(p, found, job, blocks[turn % 4], digest, before);
	}
	end_digest(p, found);
}

/* A warp's digest of one block, by parts of WARP_ROUNDS, in every lane. */
INLINE uint64_t digest_alone(const struct job &job, const struct constants &constants, uint64_t (*sums)[8], unsigned lane)
{
	unsigned last = (job.length - 1) / XXH3_ROUND, i = lane % 8;
	uint64_t accumulator = constants.start[i];

#pragma unroll 1
	for (unsigned first = 0; first <= last; first += WARP_ROUNDS) {
		sum_rounds(job, first, first + WARP_ROUNDS, constants, sums, 0, 1, lane);
		__syncwarp();
		accumulator = take_rounds(accumulator, min(last - first, WARP_ROUNDS), constants, sums, i);
		if (last - first < WARP_ROUNDS)
			accumulator += sums[last - first][i];
		__syncwarp();
	}
	return merge(accumulator, job.length, constants, i);
}

/*
 * The same with a warp for up to four blocks, which waits for no other warp. It digests small ones together, 8 lanes
 * each. They are far apart, because large ones lie side by side, and one warp should not have them all. It knows the
 * blocks after those that it reads, so their regions come meanwhile.
 */
INLINE void digest_small(const struct tt_capture_params &p)
{
	__shared__ __align__(16) struct constants constants;
	__shared__ uint64_t room[TT_DIGEST_WARPS][WARP_ROUNDS][8], alone[TT_DIGEST_WARPS][WARP / GROUP_LANES];
	__shared__ struct job all[TT_DIGEST_WARPS][WARP / GROUP_LANES];
	__shared__ struct found found;
	__shared__ bool off;
	unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, mine = lane / GROUP_LANES, region = 0, after = 0;
	bool begins = lane % GROUP_LANES == 0;
	unsigned warps = gridDim.x * TT_DIGEST_WARPS, take = min(WARP / GROUP_LANES, (p.blocks + warps - 1) / warps);
	unsigned turns = (p.blocks + take - 1) / max(take, 1), turn = blockIdx.x + warp * gridDim.x, next = turn + warps;
	uint64_t (*sums)[8] = room[warp], check = 0;
	struct job *jobs = all[warp];

	prepare_constants(&constants, lane);
	if (threadIdx.x == 0) {
		found = begin_digest(p);
		off = cancelled(p);
	}
	__syncthreads();
#pragma unroll 1
	for (; turn < turns && !off; turn = next, next = __shfl_sync(ALL_LANES, after, 0)) {
		unsigned count = min(take, (p.blocks - turn + turns - 1) / turns), block = turn + mine * turns;

		if (lane == 0)
			after = next < turns ? 2 * warps + atomicAdd(&at<struct tt_capture_control>(p.control)->next, 1u) : turns;
		if (begins && mine < count) {
			const struct tt_capture_region *regions = at<struct tt_capture_region>(p.regions);

			region = find_region(regions, p.region_count, region, block);
			prepare_job(&jobs[mine], p, region, block, found.copies);
			prefetch(jobs[mine].stored);
			prefetch((uint64_t)&regions[min(p.region_count - 1, region + next - turn)]);
		}
		__syncwarp();
		unsigned length = mine < count ? jobs[mine].length : 0;
		bool brief = length <= XXH3_LONG, together = __all_sync(ALL_LANES, length <= GROUP_BYTES);
		bool group = take == WARP / GROUP_LANES && __any_sync(ALL_LANES, length % BATCH);
		uint64_t digest;

		if (group && __all_sync(ALL_LANES, brief || fits_group(jobs[mine].data, length))) {
			digest = digest_group(jobs[mine], brief ? 0 : length, constants, lane);
		} else {
#pragma unroll 1
			for (unsigned k = 0; k < count; k++) {
				if (jobs[k].length <= XXH3_LONG)
					continue;
				if (together)
					sum_rounds(jobs[k], 0, GROUP_BYTES / XXH3_ROUND, constants, sums + k * (GROUP_BYTES / XXH3_ROUND), 0,
					           1, lane);
				else
					alone[warp][k] = digest_alone(jobs[k], constants, sums, lane);
			}
			__syncwarp();
			digest = alone[warp][mine];
			if (together)
				digest = finish_block(max(length, 1), constants, sums + mine * (GROUP_BYTES / XXH3_ROUND), lane);
		}
		if (brief && length && jobs[mine].copy)
			copy_bytes(jobs[mine].copy, jobs[mine].data, lane % GROUP_LANES, length, GROUP_LANES);
		__syncwarp();
		if (brief && length)
			digest = xxh3_short(at<uint8_t>(jobs[mine].copy ? jobs[mine].copy : jobs[mine].data), length);
		if (begins && mine < count)
			check += list_block(p, found, jobs[mine], block, digest,
			                    p.flags & TT_CAPTURE_FULL ? 0 : *at<uint64_t>(jobs[mine].stored));
		__syncwarp();
	}
	if (check)
		add(&found.check, check);
	end_digest(p, found);
}

/* ---- copies ---- */

/* Takes an entry of the list; its contents go to payload and after. */
INLINE void prepare_copy(struct job *job, struct tt_chunk_entry *entry, const struct tt_capture_params &p, unsigned i,
                         uint64_t payload, uint64_t from)
{
	*entry = at<struct tt_chunk_entry>(p.scratch)[i];
	entry->offset -= from;
	const struct tt_capture_region &r = at<struct tt_capture_region>(p.regions)[entry->more];

	job->data = r.base + (uint64_t)entry->block * TT_BLOCK_SIZE;
	job->stored = r.digests + entry->block * sizeof(uint64_t);
	job->copy = payload + entry->offset;
	job->length = entry->length;
	job->block = entry->block;
	job->region = entry->more;
}

/*
 * Hashes each block again while copying it, because it may have been written since it was listed. Reads nothing if
 * only digests are stored.
 */
INLINE void gather(const struct tt_capture_params &p)
{
	/* As in digest: three blocks are in progress. */
	__shared__ __align__(16) struct constants constants;
	__shared__ uint64_t sums[2][BLOCK_ROUNDS][8];
	__shared__ struct job jobs[4];
	__shared__ struct tt_chunk_entry listed[4];
	__shared__ uint64_t entries, payload, from;
	__shared__ unsigned first, last;
	unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	bool prepares = threadIdx.x == TT_DIGEST_THREADS - WARP, digests = p.flags & TT_CAPTURE_DIGESTS;
	struct tt_capture_control *control = at<struct tt_capture_control>(p.control);
	uint64_t check = 0;

	/* If its digest has ended this epoch, the list may be that of the next one. Nothing else runs beside a discard. */
	if (*(volatile uint32_t *)&control->listed != p.epoch + 1 && !(p.flags & TT_CAPTURE_DISCARD))
		return;
	prepare_constants(&constants, lane);
	if (prepares) {
		struct range r = find_range(p);
		struct place place = place_chunk(p, r.last - r.first, r.bytes);

		entries = p.ring + place.at + sizeof(struct tt_chunk);
		payload = p.ring + place.at + place.payload;
		from = r.from;
		first = r.first;
		last = place.fits && !discarded(p) ? r.last : 0;
		if (first + blockIdx.x < last)
			prepare_copy(&jobs[0], &listed[0], p, first + blockIdx.x, payload, from);
	}
	__syncthreads();
	for (unsigned i = first + blockIdx.x, turn = 0; i < last; i += gridDim.x, turn++) {
		const struct job &job = jobs[turn % 4];
		struct tt_chunk_entry &entry = listed[turn % 4];

		if (prepares && i + gridDim.x < last)
			prepare_copy(&jobs[(turn + 1) % 4], &listed[(turn + 1) % 4], p, i + gridDim.x, payload, from);
		if (!digests && job.length > XXH3_LONG)
			sum_block(job, constants, sums[turn % 2], warp, lane);
		__syncthreads();
		if (warp != 0)
			continue;
		uint64_t digest = digests ? entry.digest : finish_job(job, constants, sums[turn % 2], lane);
		if (lane != 0)
			continue;
		entry.more = digest == entry.digest ? 0 : TT_ENTRY_WRITTEN;
		entry.digest = digest;
		write_entry(entries + (i - first) * sizeof entry, entry);
		*at<uint64_t>(job.stored) = digest;
		check += tt_entry_mix(&entry);
	}
	__syncthreads();
	if (last_to_finish(control, check))
		end_range(p);
}

/* ---- kernels ---- */

#define DIGEST_KERNEL extern "C" __global__ void __launch_bounds__(TT_DIGEST_THREADS, TT_DIGEST_CTAS_PER_SM)
#define SMALL_KERNEL extern "C" __global__ void __launch_bounds__(TT_DIGEST_THREADS, TT_DIGEST_SMALL_CTAS_PER_SM)
