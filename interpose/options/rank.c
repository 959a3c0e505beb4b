/*
 * Reads the rank of the process. See rank.h.
 *
 * Of several launchers the innermost counts: `srun torchrun` gives workers torchrun's rank. Programs may set these
 * variables themselves before their first call, as those that start processes with multiprocessing do.
 */
#include "options/rank.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "options/options.h"
#include "util/json_writer.h"

#define MOST_RANKS (1 << 20) /* of a job; readers refuse more, because they list those that are missing */

/* The variables of each launcher. `only`: it set the others if this one is there. */
static const struct launcher {
	const char *name, *only, *rank, *local_rank, *world_size, *job;
} launchers[] = {
	{"torchrun", "TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
	{"torch.distributed", "WORLD_SIZE", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"},
	{"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE",
	 "PMIX_NAMESPACE"},
	{"MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE",
	 "SLURM_JOB_ID"},
	{"MPICH", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "SLURM_JOB_ID"},
	{"srun", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_JOB_ID"},
};

static struct {
	const char *launcher; /* NULL: no rank is known */
	uint32_t rank, local_rank, world_size;
	bool has_local_rank;
	char job[128], node[65], visible_devices[256];
} here;

static bool number(const char *variable, uint32_t *out)
{
	const char *text = getenv(variable);
	char *end = NULL;
	unsigned long n = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;

	*out = (uint32_t)n;
	return end && !*end && n < UINT32_MAX;
}

static void copy_text(char *out, size_t size, const char *variable)
{
	const char *text = getenv(variable);

	snprintf(out, size, "%s", text ? text : "");
}

void rank_read(void)
{
	for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
		const struct launcher *l = &launchers[i];

		if (!getenv(l->only) || !number(l->rank, &here.rank) || !number(l->world_size, &here.world_size) ||
		    here.rank >= here.world_size || here.world_size > MOST_RANKS)
			continue;
		here.launcher = l->name;
		here.has_local_rank = number(l->local_rank, &here.local_rank);
		copy_text(here.job, sizeof(here.job), l->job);
		copy_text(here.visible_devices, sizeof(here.visible_devices), "CUDA_VISIBLE_DEVICES");
		if (gethostname(here.node, sizeof(here.node) - 1))
			*here.node = 0;
		return;
	}
	here.launcher = NULL;
}

const uint32_t *rank_of_process(void)
{
	return here.launcher ? &here.rank : NULL;
}

bool rank_is_left_out(void)
{
	bool chosen = false;

	return *options.ranks && !(here.launcher && numbers_read(options.ranks, here.rank, &chosen) && chosen);
}

void rank_json(struct json *j)
{
	if (!here.launcher) {
		json_null(j);
		return;
	}
	json_open(j, '{');
	json_member_u64(j, "rank", here.rank);
	json_key(j, "local_rank");
	if (here.has_local_rank)
		json_u64(j, here.local_rank);
	else
		json_null(j);
	json_member_u64(j, "world_size", here.world_size);
	json_member_string(j, "node", here.node);
	json_member_string(j, "job", here.job);
	json_member_string(j, "launcher", here.launcher);
	json_member_string(j, "visible_devices", here.visible_devices);
	json_close(j, '}');
}
