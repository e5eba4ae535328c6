//! The benchmarks of the study of UCX on Fugaku, for any libucp: see docs/STUDY.md, and `study -h` for the options.
#define _GNU_SOURCE
#include "../mpi/mapped_ucp.h"

#include "benchmark.h"
#include "cores.h"
#include "figure.h"
#include "job.h"
#include "options.h"

#include <string.h>

static const struct {
    const char *name;
    benchmark run;
} BENCHMARKS[] = {
    {"pingpong_put", pingpong_put}, {"pingpong_tag", pingpong_tag}, {"put", put_rate},
    {"get", get_rate},              {"gups_atomic", gups_atomic},   {"gups_put_get", gups_put_get},
};

static benchmark find(const char *name)
{
    for (size_t i = 0; i < sizeof(BENCHMARKS) / sizeof(*BENCHMARKS); i++) {
        if (strcmp(name, BENCHMARKS[i].name) == 0) {
            return BENCHMARKS[i].run;
        }
    }
    die("there is no benchmark '%s'", name);
}

/** With each number of threads, every setting of workers that differs from the ones before it. */
static void run_all_threads(benchmark run)
{
    for (const int *threads = options.threads; *threads > 0; threads++) {
        int last = 0;

        for (int i = 0; i < options.worker_settings; i++) {
            int workers = options.workers[i] == EACH || options.workers[i] > *threads ? *threads : options.workers[i];

            if (workers != last) {
                run(*threads, workers);
            }
            last = workers;
        }
    }
}

int main(int argc, char **argv)
{
    start_job(&argc, &argv);
    read_options(argc, argv);
    for (const char *const *name = options.benchmarks; *name != NULL; name++) {
        find(*name);
    }
    world_rank = job.rank; /* of the header below, which says which libucp is mapped */
    report_mapped_ucp();
    find_cores();
    print_heading();
    for (const char *const *name = options.benchmarks; *name != NULL; name++) {
        run_all_threads(find(*name));
    }
    MPI_Finalize();
    return 0;
}
