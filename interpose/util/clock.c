/*
 * Adjusts the processor's counter to CLOCK_MONOTONIC. See clock.h for the invariant.
 *
 * The clock is a sequence of lines. Each begins at the end of the one before, with the slope that
 * reaches the true time at the next adjustment, so the clock has no steps.
 */
#include "util/clock.h"

#include "util/compiler.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define LEAST_NS 20000000ull /* least time between the two readings for the first line */
#define EVERY_NS 500000000ull
#define WRONG_NS 1000000     /* a larger error means that the counter was stopped or set */
#define LINES 64             /* a reader that is interrupted for longer than all of them fails */

struct reading {
	uint64_t ticks, ns;
};

HOT_DATA const struct clock_line *_Atomic clock_line;

static struct clock_line lines[LINES];

static struct {
	unsigned next_line;
	struct reading first, last;
	bool unreliable;
} tuning;

static bool reliable(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d = 0;
	char source[16] = "";
	FILE *f;

	if (__get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8) /* the counter has a constant rate and never stops */
		return true;
	if (!(f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re")))
		return false;
	bool trusted = fgets(source, sizeof(source), f) && !strcmp(source, "tsc\n");
	fclose(f);
	return trusted;
#elif defined(__aarch64__)
	return true;
#else
	return false;
#endif
}

/* The narrowest of a few tries. */
static struct reading read_both(void)
{
	uint64_t width = UINT64_MAX;
	struct reading best = {0};
	struct timespec t;

	for (int i = 0; i < 8; i++) {
		uint64_t before = clock_ticks();
		clock_gettime(CLOCK_MONOTONIC, &t);
		uint64_t after = clock_ticks();
		if (after - before < width) {
			width = after - before;
			best = (struct reading){before + width / 2, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec};
		}
	}
	return best;
}

static void draw(struct reading from, double rate)
{
	struct clock_line *line = &lines[tuning.next_line++ % LINES];

	*line = (struct clock_line){from.ticks, from.ns, (int64_t)(rate * 4294967296.0)};
	atomic_store_explicit(&clock_line, line, memory_order_release);
}

void clock_tune(void)
{
	const struct clock_line *line = atomic_load_explicit(&clock_line, memory_order_relaxed);

	if (tuning.unreliable)
		return;
	struct reading now = read_both();
	if (!tuning.first.ns) {
		tuning.unreliable = !reliable();
		tuning.first = tuning.last = now;
		return;
	}
	if (now.ns - tuning.last.ns < (line ? EVERY_NS : LEAST_NS) || now.ticks <= tuning.first.ticks)
		return;
	double rate = (double)(now.ns - tuning.first.ns) / (double)(now.ticks - tuning.first.ticks);
	if (!line) {
		tuning.last = now;
		draw(now, rate);
		return;
	}
	int64_t behind = (int64_t)(now.ns - clock_on_line(line, now.ticks));
	if (behind > WRONG_NS || behind < -WRONG_NS) {
		tuning.unreliable = true;
		atomic_store_explicit(&clock_line, NULL, memory_order_release);
		return;
	}
	tuning.last = now;
	now.ns -= (uint64_t)behind;
	draw(now, rate * (1 + (double)behind / (double)EVERY_NS));
}
