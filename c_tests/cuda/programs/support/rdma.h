/*
 * A program: messages, puts and gets between devices by adapters. IN_PLACE: these access the memory of devices; else it
 * is copied through pinned host memory. EXPORTS: the most descriptors that the driver is asked for in a process.
 * FLUSHED: devices see what adapters have written after a call of the driver.
 */
#include "exposed.h"
#include "transfer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LENGTH (3UL << 20)
#define AREAS  8

static const ucp_request_param_t none = {.op_attr_mask = 0};

static unsigned long long exports(void)
{
    return gpu_calls("cuMemGetHandleForAddressRange");
}

/* Mappings of memory of devices in this process: one of the driver, and one of each adapter that has registered it. */
static unsigned mappings(void)
{
    FILE    *maps = fopen("/proc/self/maps", "r");
    char     line[512];
    unsigned count = 0;

    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, "memfd:soft-cuda.") != NULL;
    }
    fclose(maps);
    return count;
}

static void want_copies(const side_t *side, unsigned long long copies, int in_place, const char *what)
{
    want(side, IN_PLACE && in_place ? copies == 0 : copies > 0, "%s: copies through the host %s", what,
         copies == 0 ? "0" : "some");
}

static void messages(bed_t *bed)
{
    static const struct {
        place_t from, to;
        size_t  length;
    } cases[] = {
        {GPU0, GPU1, LENGTH},   {GPU0, GPU1, (1UL << 20) + 3}, {GPU1, GPU0, LENGTH},    {HOST, GPU1, LENGTH},
        {GPU0, HOST, LENGTH},   {MAPPED0, POOL1, LENGTH},      {POOL0, MAPPED1, LENGTH}, {MANAGED, GPU1, LENGTH},
        {GPU0, MANAGED, LENGTH},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char   what[64];
        area_t source = area_make(bed->a, cases[i].from, cases[i].length);
        area_t target = area_make(bed->b, cases[i].to, cases[i].length);

        snprintf(what, sizeof(what), "%s to %s", place_names[cases[i].from], place_names[cases[i].to]);
        unsigned long long copies = transfer(bed, &source, &target, cases[i].length, (unsigned)i, what);
        int in_place = cases[i].from != MANAGED && cases[i].to != MANAGED;
        if (cases[i].from != HOST) {
            want_copies(bed->a, copies, in_place, what);
        }
        if (cases[i].to != HOST) {
            want_copies(bed->b, copies, in_place, what);
        }
        area_free(&source);
        area_free(&target);
    }
}

/* B accesses memory of A, in pieces; A progresses only what the bed needs. */
static void accesses(bed_t *bed, place_t remote, place_t local, size_t piece)
{
    exposed_t          exposed;
    area_t             area = area_make(bed->b, local, LENGTH);
    char               what[64];
    unsigned long long before;

    snprintf(what, sizeof(what), "%zu bytes of %s, %s", piece, place_names[remote], place_names[local]);
    expose(bed, 1, remote, LENGTH, &exposed);
    area_fill(&area, 0, LENGTH, 7);
    area_set(&exposed.area, 0);
    bed_sync(bed);
    before = gpu_copies();
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_rkey_h   rkey  = exposed_key(bed->b, bed->b->ep, &exposed);
        ucs_status_t ended = UCS_OK;
        for (size_t at = 0; at < 4 * piece && at + piece <= LENGTH && ended == UCS_OK; at += piece) {
            ended = bed_wait(bed, ucp_put_nbx(bed->b->ep, area.memory + at, piece, exposed.remote + at, rkey, &none));
        }
        ucs_status_t flushed = bed_wait(bed, ucp_ep_flush_nbx(bed->b->ep, &none));
        want(bed->b, ended == UCS_OK && flushed == UCS_OK, "%s: put %s, flush %s", what, status_name(ended),
             status_name(flushed));
        area_set(&area, 0);
        before = gpu_copies();
        for (size_t at = 0; at < 4 * piece && at + piece <= LENGTH && ended == UCS_OK; at += piece) {
            ended = bed_wait(bed, ucp_get_nbx(bed->b->ep, area.memory + at, piece, exposed.remote + at, rkey, &none));
        }
        want(bed->b, ended == UCS_OK, "%s: get %s", what, status_name(ended));
        if (local != HOST) {
            want_copies(bed->b, gpu_copies() - before, 1, what);
        }
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    if (bed->a != NULL && remote != HOST) {
        want_copies(bed->a, gpu_copies() - before, 1, what);
    }
    bed_sync(bed);
    size_t used = 4 * piece <= LENGTH ? 4 * piece : LENGTH / piece * piece;
    want(bed->a, area_check(&exposed.area, 0, used, 0, 7)[0] == 'g', "%s: put data", what);
    want(bed->b, area_check(&area, 0, used, 0, 7)[0] == 'g', "%s: got data", what);
    bed_sync(bed);
    hide(bed, 1, &exposed);
    area_free(&area);
}

/* Other memory takes the place of memory that was registered. */
static void freed(bed_t *bed)
{
    area_t      source = area_make(bed->a, GPU0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);
    const char *earlier = source.memory;

    transfer(bed, &source, &target, LENGTH, 20, "before it is freed");
    area_free(&source);
    source = area_make(bed->a, GPU0, LENGTH);
    want(bed->a, source.memory == earlier, "other memory at the same address");
    unsigned long long copies = transfer(bed, &source, &target, LENGTH, 21, "freed and allocated again");
    want_copies(bed->a, copies, 1, "freed and allocated again");
    earlier = target.memory;
    area_free(&target);
    target = area_make(bed->b, GPU1, LENGTH);
    want(bed->b, target.memory == earlier, "other memory at the same address");
    copies = transfer(bed, &source, &target, LENGTH, 22, "a target freed and allocated again");
    want_copies(bed->b, copies, 1, "a target freed and allocated again");
    area_free(&source);
    area_free(&target);
}

/* Registrations of memory that was freed end when other memory is registered. */
static void many_freed(bed_t *bed)
{
    area_t   areas[AREAS], target = area_make(bed->b, GPU1, LENGTH);
    unsigned before = mappings(); /* some of memory that was freed among them */

    for (int i = 0; i < AREAS; i++) {
        areas[i] = area_make(bed->a, GPU0, LENGTH);
    }
    for (int i = 0; i < AREAS; i++) {
        transfer(bed, &areas[i], &target, LENGTH, 30 + i, "one of many");
    }
    unsigned kept = mappings();
    for (int i = 0; i + 1 < AREAS; i++) {
        area_free(&areas[i]);
    }
    area_t last = area_make(bed->a, GPU0, LENGTH / 2);
    transfer(bed, &last, &target, LENGTH / 2, 40, "after most were freed");
    want(bed->a, !IN_PLACE || kept >= before + AREAS + AREAS / 2, "many are registered");
    int are_few = mappings() <= before + 4;
    want(bed->a, are_few, "mappings after most were freed: %s", are_few ? "few" : "many");
    area_free(&areas[AREAS - 1]);
    area_free(&last);
    area_free(&target);
}

/* Registrations of memory that was freed end by themselves, too. */
static void all_freed(bed_t *bed)
{
    const side_t *side = bed->a != NULL ? bed->a : bed->b;
    time_t        limit = time(NULL) + 20;

    bed_sync(bed);
    while (mappings() > 0 && time(NULL) < limit) {
        ucp_worker_progress(side->worker);
    }
    want(side, mappings() == 0, "mappings after all were freed: %s", mappings() == 0 ? "none" : "some");
    bed_sync(bed);
}

/* Devices see what adapters have written when a receive or a get completes: those of B. A only sends. */
static void flushes(const bed_t *bed)
{
    const side_t      *side  = bed->b != NULL ? bed->b : bed->a;
    unsigned long long calls = gpu_calls("cuFlushGPUDirectRDMAWrites");

#ifdef FLUSHED
    want(side, (calls > 0) == (bed->b != NULL), "flushes: %s", calls > 0 ? "some" : "none");
#else
    want(side, calls == 0, "flushes: %llu", calls);
#endif
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    area_t       first[2];

    gpu_open();
    bed_open(bed, &params);
    /* The connection is made. */
    first[0] = area_make(bed->a, HOST, LENGTH), first[1] = area_make(bed->b, HOST, LENGTH);
    transfer(bed, &first[0], &first[1], LENGTH, 1, "host to host");
    area_free(&first[0]);
    area_free(&first[1]);
    messages(bed);
    accesses(bed, GPU0, GPU1, LENGTH);
    accesses(bed, GPU0, GPU1, 8);
    accesses(bed, GPU0, GPU1, 20000);
    accesses(bed, GPU0, HOST, 8);
    accesses(bed, GPU0, HOST, LENGTH);
    accesses(bed, HOST, GPU1, 100);
    accesses(bed, HOST, GPU1, LENGTH);
    accesses(bed, MAPPED0, POOL1, LENGTH);
    freed(bed);
    many_freed(bed);
    all_freed(bed);
    want(bed->a, exports() <= EXPORTS, "descriptors at A: %llu", exports());
    want(bed->b, exports() <= EXPORTS, "descriptors at B: %llu", exports());
    flushes(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
