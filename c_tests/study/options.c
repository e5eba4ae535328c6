//! The command line: see options.h.
#define _GNU_SOURCE
#include "options.h"
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const USAGE =
    "usage: study [BENCHMARK...] [OPTIONS]   (an even number of ranks; rank i is paired with rank i + half of them)\n"
    "  benchmarks: pingpong_put pingpong_tag put get gups_atomic gups_put_get (default: all)\n"
    "  -t LIST            numbers of threads of a rank (1,2,4)\n"
    "  -w LIST            numbers of workers: one, each (one per thread) or a number; threads take turns (one,each)\n"
    "  -s MIN:MAX:FACTOR  sizes in bytes, from 4 on (4:1048576:4)\n"
    "  -W NUMBER          puts or gets in a window (64), fewer of large ones\n"
    "  -l NUMBER          updates of a thread in flight (64)\n"
    "  -b BITS            2^BITS words of table in each rank (17 and what the threads take, at least 20)\n"
    "  -T SECONDS         of a repetition, about (0.1)\n"
    "  -r NUMBER          repetitions, of which the median counts (5)\n"
    "  -u                 remote memory is the program's own, not allocated by the library\n";

struct options options = {
    .benchmarks = {"pingpong_put", "pingpong_tag", "put", "get", "gups_atomic", "gups_put_get"},
    .threads = {1, 2, 4},
    .workers = {1, EACH},
    .worker_settings = 2,
    .smallest = 4,
    .largest = 1 << 20,
    .factor = 4,
    .window = 64,
    .look_ahead = 64,
    .seconds = 0.1,
    .repetitions = 5,
};

__attribute__((noreturn)) static void refuse(const char *what)
{
    if (job.rank == 0) {
        fprintf(stderr, "study: %s\n%s", what, USAGE);
    }
    MPI_Finalize();
    exit(2);
}

static int number(const char *word, int least, int most)
{
    char *end;
    long value = strtol(word, &end, 10);

    if (end == word || *end != '\0' || value < least || value > most) {
        refuse(word);
    }
    return (int)value;
}

static int worker_setting(const char *word)
{
    return strcmp(word, "one") == 0 ? 1 : strcmp(word, "each") == 0 ? EACH : number(word, 1, MAX_THREADS);
}

static int thread_number(const char *word)
{
    return number(word, 1, MAX_THREADS);
}

/** Returns how many words the list has; the list is ended by 0. */
static int read_list(char *words, int (*read)(const char *), int list[MAX_LIST])
{
    char *rest = NULL;
    int count = 0;

    for (char *word = strtok_r(words, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (count == MAX_LIST - 1) {
            refuse("a list is too long");
        }
        list[count++] = read(word);
    }
    list[count] = 0;
    if (count == 0) {
        refuse("a list is empty");
    }
    return count;
}

static void read_sizes(const char *word)
{
    options.factor = 4;
    if (sscanf(word, "%zu:%zu:%zu", &options.smallest, &options.largest, &options.factor) < 2 ||
        options.smallest < 4 || options.smallest > options.largest || options.largest > 1u << 30 ||
        options.factor < 2 || (options.smallest & (options.smallest - 1)) || (options.factor & (options.factor - 1))) {
        refuse("sizes are MIN:MAX:FACTOR, powers of two, from 4 on");
    }
}

static void read_option(int option, char *word)
{
    switch (option) {
    case 't':
        read_list(word, thread_number, options.threads);
        break;
    case 'w':
        options.worker_settings = read_list(word, worker_setting, options.workers);
        break;
    case 's':
        read_sizes(word);
        break;
    case 'W':
        options.window = number(word, 1, 65536);
        break;
    case 'l':
        options.look_ahead = number(word, 1, 1024); /* the most that HPC Challenge allows */
        break;
    case 'b':
        options.table_bits = number(word, 4, 40);
        break;
    case 'T':
        options.seconds = atof(word);
        break;
    case 'r':
        options.repetitions = number(word, 1, MAX_REPETITIONS);
        break;
    case 'u':
        options.user_memory = 1;
        break;
    default:
        refuse("the options are");
    }
}

void read_options(int argc, char **argv)
{
    int option, count = 0;

    opterr = job.rank == 0;
    while ((option = getopt(argc, argv, "t:w:s:W:l:b:T:r:u")) != -1) {
        read_option(option, optarg);
    }
    if (argc - optind >= MAX_LIST) {
        refuse("too many benchmarks");
    }
    if (optind < argc) {
        memset(options.benchmarks, 0, sizeof(options.benchmarks));
    }
    while (optind < argc) {
        options.benchmarks[count++] = argv[optind++];
    }
    if (job.size % 2 != 0) {
        refuse("an even number of ranks is needed");
    }
}
