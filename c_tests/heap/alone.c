/*
 * The shared heap without communication: what a program does with memory of malloc has the effects that it has with
 * private memory. Preloaded librucp_heap.so, UCX_HEAP=shared.
 *
 * usage: alone CASE
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH (3 << 20)

extern char **environ;

static void fail(int line, const char *what)
{
    printf("alone.c:%d: %s\n", line, what);
    exit(1);
}

#define WANT(condition)                                                                                               \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fail(__LINE__, #condition);                                                                               \
        }                                                                                                             \
    } while (0)

static int is_all(const unsigned char *memory, size_t length, int value)
{
    for (size_t i = 0; i < length; i++) {
        if (memory[i] != value) {
            return 0;
        }
    }
    return 1;
}

/* The line of /proc/self/smaps with this word, of the mapping that has the address. */
static int mapping_has(const void *address, const char *field, const char *word)
{
    char  line[512];
    int   inside = 0, found = 0;
    FILE *file = fopen("/proc/self/smaps", "r");

    WANT(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && strchr(line, '-') < strchr(line, ' ')) {
            inside = (uintptr_t)address >= start && (uintptr_t)address < end;
            found |= inside && field == NULL && strstr(line, word) != NULL;
        } else if (inside && field != NULL && strncmp(line, field, strlen(field)) == 0) {
            found |= strstr(line + strlen(field), word) != NULL;
        }
    }
    fclose(file);
    return found;
}

static int is_shared(const void *address)
{
    return mapping_has(address, NULL, "memfd:rucp-heap");
}

static unsigned char *make(size_t length, int value)
{
    unsigned char *memory = malloc(length);

    WANT(memory != NULL && is_shared(memory));
    memset(memory, value, length);
    return memory;
}

/* Every function of malloc(3): sizes, alignments, contents. */
static void functions(void)
{
    unsigned char *small = malloc(100), *large = make(LENGTH, 1);
    void          *aligned = NULL;
    /* More than there is; not known to the compiler. */
    volatile size_t huge = SIZE_MAX / 2 - 10;

    WANT(!is_shared(small) && malloc_usable_size(large) >= LENGTH && malloc_usable_size(small) >= 100);
    small = realloc(small, LENGTH);
    WANT(small != NULL);
    large = realloc(large, 4 * LENGTH);
    WANT(large != NULL && is_shared(large) && is_all(large, LENGTH, 1));
    large = realloc(large, LENGTH / 4);
    WANT(large != NULL && is_all(large, LENGTH / 4, 1));
    large = realloc(large, 10);
    WANT(large != NULL && is_all(large, 10, 1));
    free(large);
    free(small);
    for (size_t alignment = 8; alignment <= 8 << 20; alignment *= 2) {
        WANT(posix_memalign(&aligned, alignment, LENGTH) == 0 && (uintptr_t)aligned % alignment == 0);
        memset(aligned, 1, LENGTH);
        free(aligned);
        aligned = memalign(alignment, LENGTH + 1);
        WANT(aligned != NULL && (uintptr_t)aligned % alignment == 0);
        free(aligned);
    }
    WANT(posix_memalign(&aligned, 24, LENGTH) == EINVAL);
    aligned = aligned_alloc(1 << 16, LENGTH);
    WANT(aligned != NULL && is_shared(aligned));
    free(aligned);
    aligned = valloc(LENGTH);
    WANT((uintptr_t)aligned % (uintptr_t)sysconf(_SC_PAGESIZE) == 0);
    free(aligned);
    aligned = pvalloc(LENGTH + 1);
    WANT(aligned != NULL);
    free(aligned);
    errno = 0;
    WANT(reallocarray(NULL, huge, 4) == NULL && errno == ENOMEM);
    errno = 0;
    WANT(calloc(huge, 4) == NULL && errno == ENOMEM);
    errno = 0;
    WANT(malloc(huge * 2) == NULL && errno == ENOMEM);
    errno   = EPERM;
    aligned = make(LENGTH, 1);
    free(aligned);
    WANT(errno == EPERM);
    free(NULL);
}

/* calloc returns zero bytes wherever they have been before, and freed memory goes back to the system. */
static void contents(void)
{
    enum { BLOCKS = 300 };
    static unsigned char *blocks[BLOCKS];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = calloc(1, 1 << 20);
            WANT(blocks[i] != NULL && is_all(blocks[i], 1 << 20, 0));
            memset(blocks[i], 0xEE, 1 << 20);
        }
        for (int i = 0; i < BLOCKS; i++) {
            free(blocks[(i * 7) % BLOCKS]);
        }
    }
    unsigned long pages, resident, shared;
    FILE         *file = fopen("/proc/self/statm", "r");
    WANT(file != NULL && fscanf(file, "%lu %lu %lu", &pages, &resident, &shared) == 3);
    fclose(file);
    WANT(shared * (unsigned long)sysconf(_SC_PAGESIZE) < 200ul << 20);
}

static void check_child(unsigned char *one, unsigned char *zero)
{
    int status, ready[2], go[2];

    WANT(pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    WANT(child >= 0);
    if (child == 0) {
        char byte;
        memset(one, 9, LENGTH);
        WANT(write(ready[1], "r", 1) == 1 && read(go[0], &byte, 1) == 1);
        WANT(is_all(one, LENGTH, 9) && is_all(zero, LENGTH, 0)); /* the parent has written into both */
        unsigned char *fresh = make(LENGTH, 3);
        WANT(is_all(one, LENGTH, 9));
        free(fresh);
        free(one);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            memset(zero, 8, LENGTH);
            _exit(0);
        }
        WANT(waitpid(grandchild, &status, 0) == grandchild && status == 0 && is_all(zero, LENGTH, 0));
        _exit(0);
    }
    char byte;
    WANT(read(ready[0], &byte, 1) == 1 && is_all(one, LENGTH, 1));
    memset(one, 4, LENGTH);
    memset(zero, 5, LENGTH);
    WANT(write(go[1], "g", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    WANT(is_all(one, LENGTH, 4) && is_all(zero, LENGTH, 5));
    close(ready[0]), close(ready[1]), close(go[0]), close(go[1]);
}

/* A parent and its child do not see what the other writes. */
static void forks(void)
{
    for (int i = 0; i < 3; i++) {
        unsigned char *one = make(LENGTH, 1), *zero = calloc(1, LENGTH);
        check_child(one, zero);
        free(one);
        free(zero);
    }
}

static atomic_int stop;

static void *allocate(void *unused)
{
    while (!stop) {
        unsigned char *memory = make(LENGTH / 8, 7);
        WANT(memory[LENGTH / 8 - 1] == 7);
        free(memory);
    }
    return unused;
}

/* Forks while other threads allocate: the child allocates, too. */
static void forks_of_threads(void)
{
    pthread_t threads[3];
    int       status;

    for (int i = 0; i < 3; i++) {
        WANT(pthread_create(&threads[i], NULL, allocate, NULL) == 0);
    }
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            free(make(LENGTH, 2));
            _exit(0);
        }
        WANT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Children that share the address space, and other programs. */
static void spawns(void)
{
    unsigned char *one    = make(LENGTH, 1);
    char          *args[] = {"true", NULL};
    int            status;
    pid_t          child;

    WANT(posix_spawnp(&child, "true", NULL, NULL, args, environ) == 0 && waitpid(child, &status, 0) == child &&
         status == 0);
    WANT(system("sort /proc/self/status > /dev/null") == 0);
    child = vfork();
    if (child == 0) {
        execlp("true", "true", NULL);
        _exit(1);
    }
    WANT(waitpid(child, &status, 0) == child && status == 0 && is_all(one, LENGTH, 1));
    free(one);
}

/* Something else is mapped in the place of parts. */
static void replaced(void)
{
    size_t         page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *one = make(LENGTH, 1), *place = one + (1 << 20), *moved;

    WANT(mmap(place, page, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == place);
    WANT(is_all(place, page, 0) && is_all(one, 1 << 20, 1) && is_all(place + page, page, 1));
    memset(place, 2, page);
    WANT(is_all(place, page, 2));
    free(one);
    /* The segment is not used any more; another one is. */
    unsigned char *other = make(LENGTH, 3);
    WANT(other + LENGTH <= one || other >= one + LENGTH);
    free(other);
    one   = make(LENGTH, 4);
    moved = mremap(one, 1 << 20, 1 << 20, MREMAP_MAYMOVE | MREMAP_FIXED,
                   mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    WANT(moved != MAP_FAILED && is_all(moved, 1 << 20, 4) && is_all(one + (1 << 20), 1 << 20, 4));
    munmap(moved, 1 << 20);
}

/* Advice by which private memory becomes zero. */
static void advised(void)
{
    unsigned char *one = make(LENGTH, 1);

    WANT(madvise(one, 1 << 20, MADV_DONTNEED) == 0);
    WANT(is_all(one, 1 << 20, 0) && is_all(one + (1 << 20), LENGTH - (1 << 20), 1));
    WANT(madvise(one, LENGTH, MADV_WILLNEED) == 0 && is_all(one, 1 << 20, 0));
    WANT(mprotect(one, 1 << 16, PROT_READ) == 0 && mprotect(one, 1 << 16, PROT_READ | PROT_WRITE) == 0);
    free(one);
}

/* Where address space is short, the heap takes no more of it than private memory, and the program goes on. */
static void limited(void)
{
    enum { BLOCKS = 100 };
    static unsigned char *blocks[BLOCKS];
    struct rlimit         limit = {180 << 20, 180 << 20};
    int                   made, status;

    WANT(setrlimit(RLIMIT_AS, &limit) == 0);
    for (int round = 0; round < 3; round++) {
        for (made = 0; made < BLOCKS && (blocks[made] = malloc(LENGTH)) != NULL; made++) {
            memset(blocks[made], made, LENGTH);
        }
        WANT(made > 40 && made < BLOCKS);
        pid_t child = fork();
        if (child == 0) {
            WANT(is_all(blocks[made - 1], LENGTH, made - 1));
            memset(blocks[0], 0x77, LENGTH);
            _exit(0);
        }
        WANT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        for (int i = 0; i < made; i++) {
            WANT(is_all(blocks[i], LENGTH, i));
            free(blocks[i]);
        }
    }
}

/* More than the system has is refused, as for private memory, and takes nothing from what is allocated after it. */
static void too_much(void)
{
    volatile size_t most = (size_t)1 << 46;

    errno = 0;
    WANT(malloc(most) == NULL && errno == ENOMEM);
    free(make(LENGTH, 1));
}

/* What a program changes of its memory does not outlive it: protection, advice, locks. */
static void changed(void)
{
    for (int round = 0; round < 4; round++) {
        unsigned char *one = make(LENGTH, 1);
        WANT(!mapping_has(one, "VmFlags:", " dd") && !mapping_has(one + (1 << 20), "VmFlags:", " lo"));
        WANT(mprotect(one + (2 << 20), 1 << 16, PROT_NONE) == 0);
        WANT(madvise(one, 1 << 16, MADV_DONTDUMP) == 0 && mlock(one + (1 << 20), 1 << 16) == 0);
        free(one);
    }
}

/* No descriptor is left for a segment. */
static void without_descriptors(void)
{
    struct rlimit limit = {3, 3};

    WANT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    unsigned char *memory = malloc(LENGTH);
    WANT(memory != NULL);
    memset(memory, 1, LENGTH);
    free(memory);
}

/* A file as long as a segment would end the process. */
static void limited_files(void)
{
    struct rlimit limit = {1 << 20, 1 << 20};

    WANT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    unsigned char *memory = malloc(LENGTH);
    WANT(memory != NULL && !is_shared(memory));
    memset(memory, 1, LENGTH);
    free(memory);
}

/* Forks a child that runs `child`; then the parent changes the memory, and the child looks at it: still `value`. */
static void fork_apart(unsigned char *memory, size_t length, int value)
{
    int   status, go[2];
    char  byte;
    pid_t child;

    WANT(pipe(go) == 0);
    child = fork();
    WANT(child >= 0);
    if (child == 0) {
        WANT(read(go[0], &byte, 1) == 1 && is_all(memory, length, value));
        memset(memory, 0x77, length);
        _exit(0);
    }
    memset(memory, 0x55, length);
    WANT(write(go[1], "g", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    WANT(is_all(memory, length, 0x55));
    close(go[0]), close(go[1]);
}

/* After a part was replaced, and after one was unmapped. */
static void withdrawn_forks(void)
{
    unsigned char *one = make(LENGTH, 1), *two = make(LENGTH, 2);

    WANT(mmap(one, 1 << 16, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == one);
    memset(one, 3, 1 << 16);
    fork_apart(one, 1 << 16, 3);
    fork_apart(two, LENGTH, 2);
    WANT(munmap(two + (1 << 20), 1 << 16) == 0);
    fork_apart(two, 1 << 20, 0x55);
    WANT(madvise(two, 1 << 16, MADV_DONTNEED) == 0 && is_all(two, 1 << 16, 0));
    two = make(LENGTH, 4);
    fork_apart(two, LENGTH, 4);
}

/* Guard pages stay ones in the child, and keep nothing from it. */
static void guarded_forks(void)
{
    unsigned char *one = make(LENGTH, 1);
    int            status;

    WANT(mprotect(one + (1 << 20), 1 << 16, PROT_NONE) == 0);
    fork_apart(one, 1 << 20, 1);
    pid_t child = fork();
    if (child == 0) {
        one[1 << 20] = 1;
        _exit(0);
    }
    WANT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    WANT(mprotect(one + (1 << 20), 1 << 16, PROT_READ) == 0 && is_all(one + (1 << 20), 1 << 16, 1));
}

/* The program has closed every descriptor, as daemons do, and opened files of its own by the numbers. */
static void forks_without_files(void)
{
    unsigned char *one = make(LENGTH, 1);
    char           name[] = "/tmp/rucp-heap-XXXXXX";
    int            file   = mkstemp(name);

    WANT(file >= 0 && unlink(name) == 0 && dup2(file, 3) == 3);
    for (int number = 4; number < 5000; number++) {
        dup2(3, number);
    }
    fork_apart(one, LENGTH, 1);
    for (int number = 3; number < 5000; number++) {
        WANT(close(number) == 0 || errno == EBADF);
    }
    fork_apart(one, LENGTH, 0x55);
}

/* No descriptor is left, and no file may be as long as a segment, when the process forks. */
static void forks_at_limits(void)
{
    unsigned char *one = make(LENGTH, 1);
    int            pipes[2], status;
    struct rlimit  limit = {1 << 20, 1 << 20};

    WANT(pipe(pipes) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    while (dup(0) >= 0) {
    }
    pid_t child = fork();
    if (child == 0) {
        WANT(is_all(one, LENGTH, 1));
        memset(one, 2, LENGTH);
        _exit(0);
    }
    WANT(child > 0 && waitpid(child, &status, 0) == child && status == 0 && is_all(one, LENGTH, 1));
}

/* Memory that mremap moves is like any other. */
static void moved(void)
{
    unsigned char *one = make(LENGTH, 1), *two = make(LENGTH, 2);

    unsigned char *grown = mremap(one, LENGTH, 2 * LENGTH, MREMAP_MAYMOVE);
    WANT(grown != MAP_FAILED && is_all(grown, LENGTH, 1) && is_all(grown + LENGTH, LENGTH, 0));
    memset(grown, 3, 2 * LENGTH);
    WANT(is_all(two, LENGTH, 2));
    fork_apart(grown, 2 * LENGTH, 3);
    WANT(mremap(two, LENGTH, 2 * LENGTH, 0) == MAP_FAILED && errno == ENOMEM);
    WANT(mremap(two, LENGTH, 1 << 16, 0) == two && is_all(two, 1 << 16, 2));
}

static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;
static unsigned char  *prepared;
static atomic_int      is_held;

static void before_fork(void)
{
    pthread_mutex_lock(&library);
    memset(prepared, 1, LENGTH);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&library);
}

static void in_child(void)
{
    memset(prepared, 2, LENGTH);
    pthread_mutex_init(&library, NULL);
}

static void *allocate_locked(void *unused)
{
    while (!stop) {
        pthread_mutex_lock(&library);
        is_held = 1;
        free(make(LENGTH, 1));
        pthread_mutex_unlock(&library);
    }
    return unused;
}

/* Handlers that were registered before the first allocation, and wait for a thread that allocates. */
static void fork_handlers(void)
{
    pthread_t thread;
    int       status;

    WANT(pthread_atfork(before_fork, after_fork, in_child) == 0);
    prepared = make(LENGTH, 0);
    WANT(pthread_create(&thread, NULL, allocate_locked, NULL) == 0);
    while (!is_held) {
    }
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(!is_all(prepared, LENGTH, 2));
        }
        WANT(child > 0 && waitpid(child, &status, 0) == child && status == 0 && is_all(prepared, LENGTH, 1));
    }
    stop = 1;
    pthread_join(thread, NULL);
}

enum { VM_UNMAPPED = 1 << 17 }; /* of ucm.h */

static void ignore_event(void)
{
}

/* A genuine libucm patches libc's functions, or those by which this library sees changes: then nothing is shared. */
static void bypassed(void)
{
    unsigned char *one    = make(LENGTH, 1);
    void          *libucs = dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);
    void          *libucm = dlopen("libucm.so.0", RTLD_NOW);

    if (libucs == NULL || libucm == NULL) {
        fail(__LINE__, dlerror());
    }
    int (*set)(int, int, void (*)(void), void *) =
        (int (*)(int, int, void (*)(void), void *))dlsym(libucm, "ucm_set_event_handler");
    WANT(set != NULL && set(VM_UNMAPPED, 0, ignore_event, NULL) == 0);
    WANT(mmap(one, 1 << 16, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == one);
    memset(one, 3, 1 << 16);
    fork_apart(one, 1 << 16, 3);
    fork_apart(one + (1 << 16), LENGTH - (1 << 16), 1);
    unsigned char *two = malloc(LENGTH);
    WANT(two != NULL);
    memset(two, 2, LENGTH);
    fork_apart(two, LENGTH, 2);
}

/* A core dump has the heap: anonymous shared memory, which the kernel writes unless coredump_filter excludes it. */
static void dumped(void)
{
    unsigned char *one = make(LENGTH, 1);
    unsigned       filter;
    FILE          *file = fopen("/proc/self/coredump_filter", "r");

    WANT(file != NULL && fscanf(file, "%x", &filter) == 1);
    fclose(file);
    WANT((filter & 2) != 0 && !mapping_has(one, "VmFlags:", " dd"));
    free(one);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"functions", functions}, {"contents", contents},
    {"forks", forks},         {"forks_of_threads", forks_of_threads},
    {"spawns", spawns},       {"replaced", replaced},
    {"advised", advised},     {"limited", limited},
    {"dumped", dumped},       {"without_descriptors", without_descriptors},
    {"limited_files", limited_files}, {"too_much", too_much},
    {"changed", changed}, {"withdrawn_forks", withdrawn_forks},
    {"guarded_forks", guarded_forks}, {"forks_without_files", forks_without_files},
    {"forks_at_limits", forks_at_limits}, {"moved", moved},
    {"fork_handlers", fork_handlers}, {"bypassed", bypassed},
};

int main(int argc, char **argv)
{
    alarm(60);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc < 2) {
            puts(cases[i].name);
        } else if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
