/*
 * Chooses delayed instructions and calls. See points.h for the invariant.
 */
#include "delay/points.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "delay/calls.h"
#include "store/file.h"
#include "util/json_writer.h"
#include "format.h"
#include "options/option_limits.h"
#include "options/kernel_filters.h"
#include "options/options.h"
#include "session/session.h"
#include "util/vector.h"

#define MOST_CALLS (1 << 16) /* limit of the list */

struct point {
	uint64_t pc;
	const char *mnemonic;
	uint32_t delay, seed;
	bool on;
};

struct delay_kernel {
	char *name;
	uint64_t checksum;
	struct config_kernel *asked; /* kernels of the loaded file */
	struct point *points;
	size_t count, room;
	bool done, listed;
	struct delay_kernel *next, *of_module;
};

struct late_call {
	uint64_t stream, number;
	uint32_t flags, ns;
};

static struct {
	pthread_mutex_t lock;
	pthread_once_t once;
	struct delay_config *loaded;
	struct delay_kernel *kernels;
	struct late_call *calls;
	size_t call_count, call_room;
} chosen = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};
static _Thread_local struct delay_kernel *of_module; /* the new kernels of the module that this thread loads */

/* A hash of a seed and two numbers. */
static uint64_t mixed(uint64_t seed, uint64_t a, uint64_t b)
{
	const uint64_t parts[] = {seed, a, b};
	uint64_t x = 0;

	for (unsigned i = 0; i < 3; i++) {
		x += parts[i] + 0x9e3779b97f4a7c15u;
		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
		x = (x ^ x >> 27) * 0x94d049bb133111ebu;
		x ^= x >> 31;
	}
	return x;
}

static void load(void)
{
	char why[400];

	if (!*options.delay_load)
		return;
	chosen.loaded = config_load(options.delay_load, why, sizeof(why));
	if (!chosen.loaded)
		session_warn("no delays: %s", why);
	else if (chosen.loaded->foreign)
		chosen.loaded->mode = options.delay_mode, chosen.loaded->min_ns = options.delay_min_ns;
}

static enum config_mode mode_of_delays(void)
{
	return chosen.loaded ? chosen.loaded->mode : options.delay_mode;
}

/* As delay_config.block. */
static uint32_t delayed_block(void)
{
	uint32_t given = options.delay_cluster_block;

	return given || !chosen.loaded ? given : chosen.loaded->block;
}

HOT_DATA _Atomic bool delays_in_calls;

void delays_open(void)
{
	pthread_once(&chosen.once, load);
	for (size_t i = 0; chosen.loaded && i < chosen.loaded->launch_count; i++) {
		const struct config_launch *l = &chosen.loaded->launches[i];
		if (l->on && l->delay > options.launch_delay_ns)
			options.launch_delay_ns = l->delay;
	}
	atomic_store(&delays_in_calls, options.launch_delay_ns != 0);
}

bool delays_in_kernels(void)
{
	if (*options.delay_load)
		pthread_once(&chosen.once, load);
	return options.delay_ns || delays_are_empty() || (chosen.loaded && chosen.loaded->kernel_count);
}

bool delays_are_empty(void)
{
	return !options.delay_ns && !*options.delay_load && !strcmp(options.delay_patterns, "*");
}

/* ---- points ---- */

static bool wanted(const char *mnemonic, bool built_in)
{
	const char *at = options.delay_patterns;

	if (!*at)
		return built_in;
	for (size_t n; *at; at += n + (at[n] == ',')) {
		n = strcspn(at, ",");
		size_t name = strcspn(at, ",."); /* "UTMALDG" matches UTMALDG.2D, and ST the opcode st of PTX */
		if (name && (*at == '*' || (strlen(mnemonic) == name && !strncasecmp(mnemonic, at, name))))
			return true;
	}
	return false;
}

static struct config_kernel *asked_for(const char *name, uint64_t checksum, const struct foreign_code *code)
{
	struct config_kernel *found = config_find_kernel(chosen.loaded, name, checksum);

	return found || !code ? found : config_find_foreign(chosen.loaded, name, code);
}

struct delay_kernel *delay_kernel(const char *name, uint64_t checksum, const struct foreign_code *code)
{
	struct config_kernel *asked = NULL;
	struct delay_kernel *k;

	if (!delays_in_kernels() || strpbrk(name, "\"\\"))
		return NULL;
	if (chosen.loaded ? !(asked = asked_for(name, checksum, code)) : !kernel_is_wanted(&options.delay_kernel, name))
		return NULL;
	pthread_mutex_lock(&chosen.lock);
	for (k = chosen.kernels; k; k = k->next)
		if (k->checksum == checksum && !strcmp(k->name, name))
			break;
	if (!k && (k = calloc(1, sizeof(*k)))) {
		*k = (struct delay_kernel){.name = strdup(name), .checksum = checksum, .asked = asked, .next = chosen.kernels};
		if (k->name)
			chosen.kernels = k;
		else
			free(k), k = NULL;
	}
	if (k && !k->listed) {
		k->listed = true;
		k->of_module = of_module;
		of_module = k;
	}
	pthread_mutex_unlock(&chosen.lock);
	return k;
}

void delays_of_module(void)
{
	of_module = NULL;
}

void delays_not_loaded(void)
{
	pthread_mutex_lock(&chosen.lock);
	for (struct delay_kernel *k = of_module; k; k = k->of_module) {
		k->count = 0;
		k->done = k->listed = false;
		if (k->asked)
			k->asked->used = false;
	}
	of_module = NULL;
	pthread_mutex_unlock(&chosen.lock);
}

static struct point choose(const struct delay_kernel *k, uint64_t pc, const char *mnemonic, bool built_in)
{
	uint64_t bits = mixed(chosen.loaded ? chosen.loaded->seed : options.delay_seed, k->checksum, pc);
	struct point p = {pc, mnemonic, options.delay_ns, (uint32_t)(bits >> 32), bits & 1};
	struct config_point *asked = k->asked ? config_find_point(k->asked, pc) : NULL;

	if (!k->asked) {
		p.on &= wanted(mnemonic, built_in);
		return p;
	}
	p.on = asked && asked->on;
	if (asked) {
		asked->used = true;
		p.delay = asked->delay;
		p.seed = asked->cluster_seed ? asked->cluster_seed : p.seed;
	}
	return p;
}

static void add_point(struct delay_kernel *k, struct point p)
{
	if (make_room(&k->points, &k->room, k->count, 1, sizeof(*k->points)))
		k->points[k->count++] = p; /* else the instruction is delayed without a list entry */
}

bool delay_point(struct delay_kernel *k, uint64_t pc, const char *mnemonic, bool built_in, struct delay_choice *choice)
{
	struct point p = choose(k, pc, mnemonic, built_in);

	if (!k->done && (k->asked ? config_find_point(k->asked, pc) != NULL : wanted(mnemonic, built_in)))
		add_point(k, p);
	*choice = (struct delay_choice){mode_of_delays(), chosen.loaded ? chosen.loaded->min_ns : options.delay_min_ns, p.delay,
					p.seed, delayed_block()};
	if (choice->min_ns > choice->max_ns)
		choice->min_ns = choice->max_ns;
	return p.on;
}

void delay_point_left(struct delay_kernel *k)
{
	if (!k->done && k->count)
		k->points[k->count - 1].on = false;
}

void delay_kernel_done(struct delay_kernel *k, const char *why)
{
	pthread_mutex_lock(&chosen.lock);
	if (why)
		for (size_t i = 0; i < k->count; i++)
			k->points[i].on = false;
	if (k->asked)
		k->asked->used = !why;
	k->done = true;
	pthread_mutex_unlock(&chosen.lock);
	if (why)
		session_warn("no delays in %.120s: %s", k->name, why);
}

bool delays_by_cluster(const char *name)
{
	bool late = false;

	if (mode_of_delays() < CONFIG_CLUSTER || !delays_in_kernels())
		return false;
	pthread_mutex_lock(&chosen.lock);
	for (const struct delay_kernel *k = chosen.kernels; k && !late; k = k->next)
		for (size_t i = 0; i < k->count && !late && !strcmp(k->name, name); i++)
			late = k->points[i].on;
	pthread_mutex_unlock(&chosen.lock);
	return late;
}

/* ---- calls ---- */

void delay_list(uint64_t stream, uint64_t number, uint32_t flags, uint32_t ns)
{
	if (!flags)
		return;
	pthread_mutex_lock(&chosen.lock);
	bool fits = chosen.call_count < MOST_CALLS &&
		    make_room(&chosen.calls, &chosen.call_room, chosen.call_count, 1, sizeof(*chosen.calls));
	if (fits)
		chosen.calls[chosen.call_count++] = (struct late_call){stream, number, flags, ns};
	pthread_mutex_unlock(&chosen.lock);
	if (!fits)
		session_warn("more than %u calls are delayed: delays.json lists only the first", MOST_CALLS);
}

/* Chooses half of the calls, and each kind of delay for half of these. */
static uint32_t drawn(uint64_t stream, uint64_t number)
{
	uint64_t bits = mixed(options.delay_seed, stream, number);
	bool in_stream = bits & 1 && options.launch_delays != LAUNCH_DELAYS_HOST;
	bool in_call = bits & 2 && options.launch_delays != LAUNCH_DELAYS_STREAM;

	return (in_stream ? TT_EVENTF_DELAYED_STREAM : 0) | (in_call ? TT_EVENTF_DELAYED : 0);
}

uint32_t delay_chosen(uint64_t stream, uint64_t number, uint32_t *ns)
{
	uint32_t flags = 0;

	*ns = options.launch_delay_ns;
	if (*options.delay_load) {
		const struct config_launch *l = chosen.loaded ? config_find_launch(chosen.loaded, stream, number) : NULL;
		if (l && l->on) {
			*ns = l->delay;
			flags = (l->in_stream ? TT_EVENTF_DELAYED_STREAM : 0) | (l->in_call ? TT_EVENTF_DELAYED : 0);
		}
	} else {
		flags = drawn(stream, number);
	}
	return flags;
}

/* ---- the list ---- */

static void write_kernel(struct json *j, const struct delay_kernel *k, bool cluster)
{
	char text[32];

	json_open(j, '{');
	json_member_string(j, "kernel_name", k->name);
	json_key(j, "kernel_checksum");
	json_hex16(j, k->checksum);
	json_member_open(j, "instrumentation_points", '{');
	for (size_t i = 0; i < k->count; i++) {
		const struct point *p = &k->points[i];
		json_line(j);
		snprintf(text, sizeof(text), "%llu", (unsigned long long)p->pc);
		json_member_open(j, text, '{');
		json_member_u64(j, "pc", p->pc);
		json_member_string(j, "sass", p->mnemonic);
		json_member_u64(j, "delay", p->delay);
		json_member_bool(j, "on", p->on);
		if (cluster)
			json_member_u64(j, "cluster_seed", p->seed);
		json_close(j, '}');
	}
	json_close(j, '}');
	json_close(j, '}');
}

static void write_call(struct json *j, const struct late_call *c)
{
	char text[48];

	snprintf(text, sizeof(text), "%llu:%llu", (unsigned long long)c->stream, (unsigned long long)c->number);
	json_line(j);
	json_member_open(j, text, '{');
	json_member_u64(j, "stream", c->stream);
	json_member_u64(j, "number", c->number);
	json_member_u64(j, "delay", c->ns);
	json_member_bool(j, "on", true);
	json_member_string(j, "where",
			   c->flags == TT_EVENTF_DELAYED          ? "host"
			   : c->flags == TT_EVENTF_DELAYED_STREAM ? "stream"
								  : "both");
	json_close(j, '}');
}

static void write_list(struct json *j)
{
	enum config_mode mode = mode_of_delays();
	uint32_t most = options.delay_ns > options.launch_delay_ns ? options.delay_ns : options.launch_delay_ns;

	json_open(j, '{');
	json_member_string(j, "version", "1.0");
	json_member_u64(j, "delay_ns", chosen.loaded ? chosen.loaded->delay_ns : most);
	json_member_u64(j, "delay_min_ns", chosen.loaded ? chosen.loaded->min_ns : options.delay_min_ns);
	choice_json(j, "mode", LIMIT_DELAY_MODE, mode);
	if (mode >= CONFIG_CLUSTER && delayed_block())
		json_member_u64(j, "cluster_block", delayed_block() - 1);
	json_member_u64(j, "seed", chosen.loaded ? chosen.loaded->seed : options.delay_seed);
	json_member_string(j, "patterns", options.delay_patterns);
	json_member_open(j, "kernels", '{');
	for (const struct delay_kernel *k = chosen.kernels; k; k = k->next) {
		size_t size = strlen(k->name) + 18;
		char *key = malloc(size);
		if (!key) {
			j->failed = true;
			break;
		}
		snprintf(key, size, "%s_%016llx", k->name, (unsigned long long)k->checksum);
		json_line(j);
		json_key(j, key);
		write_kernel(j, k, mode >= CONFIG_CLUSTER);
		free(key);
	}
	json_close(j, '}');
	json_member_open(j, "launches", '{');
	for (size_t i = 0; i < chosen.call_count; i++)
		write_call(j, &chosen.calls[i]);
	json_close(j, '}');
	json_close(j, '}');
}

static bool sink(void *file, const char *text, size_t size)
{
	return file_append(file, text, size);
}

/* Warns about entries of the loaded file that had no effect. */
static void tell_unused(void)
{
	size_t of_kernels = 0, points = 0;
	const char *name = NULL;

	for (size_t i = 0; chosen.loaded && i < chosen.loaded->kernel_count; i++) {
		const struct config_kernel *k = &chosen.loaded->kernels[i];
		size_t on = 0;
		for (size_t p = 0; p < k->count; p++)
			on += k->points[p].on && !(k->used && k->points[p].used);
		points += on;
		of_kernels += on > 0;
		name = on ? k->name : name;
	}
	if (options.delay_ns && !chosen.kernels)
		session_warn("no delays inside kernels: no loaded code can be patched");
	if (points)
		session_warn("%zu delays in %zu kernels were not inserted, because their code was not loaded, or was "
			     "different: %.100s%s",
			     points, of_kernels, name, of_kernels > 1 ? ", …" : "");
}

void delays_write(const struct folder *folder)
{
	struct json j;
	struct file f;

	if (!options.launch_delay_ns && !*options.delay_load && !delays_in_kernels())
		return;
	pthread_mutex_lock(&chosen.lock);
	tell_unused();
	bool made = file_create(&f, folder, "delays.json.tmp", true), good = false;
	if (made) {
		json_begin(&j, sink, &f);
		write_list(&j);
		good = json_flush(&j);
		json_free(&j);
		if (good)
			good = file_publish(&f, folder, "delays.json");
		else
			file_discard(&f);
	}
	pthread_mutex_unlock(&chosen.lock);
	if (!good)
		session_warn("%s/delays.json was not written", folder->path);
}
