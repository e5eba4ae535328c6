/*
 * Messages from memory of cuMemMap and of pools that the receiver copies from where it is: it is opened once, by a
 * descriptor of the sender's process. Memory that is exchanged at its addresses, memory that cannot be shared, exports
 * and imports that are refused, a sender that is stopped, a child of the sender, and what is left afterwards.
 *
 * SETTINGS: UCX_LOG_LEVEL=diag
 */
#define _GNU_SOURCE
#include "gpu.h"
#include "mapped.h"
#include "transfer.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH (2 << 20)
#define SHORTEST (100 << 10) /* longer than the thresholds of all transports */

static unsigned long long imported(void)
{
    return gpu_calls("cuMemImportFromShareableHandle") + gpu_calls("cuMemPoolImportPointer");
}

/* Descriptors of sockets, and of memory that was made to be shared. */
static unsigned descriptors(void)
{
    DIR           *list  = opendir("/proc/self/fd");
    unsigned       count = 0;
    struct dirent *one;

    while ((one = readdir(list)) != NULL) {
        char    target[128] = "";
        ssize_t length      = readlinkat(dirfd(list), one->d_name, target, sizeof(target) - 1);
        int     shared      = strstr(target, "soft-cuda.0.1") != NULL || strstr(target, "soft-cuda.1.1") != NULL;
        count += length > 0 && (shared || strncmp(target, "socket:", 7) == 0);
    }
    closedir(list);
    return count;
}

static const char *text_of(place_t from, place_t to)
{
    static char text[64];

    snprintf(text, sizeof(text), "%s to %s", place_names[from], place_names[to]);
    return text;
}

static void direct(bed_t *bed, place_t from, place_t to, size_t length)
{
    const char *what   = text_of(from, to);
    area_t      source = area_make(bed->a, from, length), target = area_make(bed->b, to, length);

    for (unsigned i = 0; i < 3; i++) {
        unsigned long long before = imported(), copied = transfer(bed, &source, &target, length, i, what);
        want(bed->a, copied == 0, "%s, %zu: copies at the sender %llu", what, length, copied);
        want(bed->b, copied == 1, "%s, %zu: copies at the receiver %llu", what, length, copied);
        want(bed->b, imported() - before == (i == 0), "%s, %zu: imported %llu", what, length, imported() - before);
    }
    area_free(&source);
    area_free(&target);
}

/* Not one copy at the receiver, as messages carry the data. */
static void by_messages(bed_t *bed, place_t from, place_t to)
{
    const char        *what   = text_of(from, to);
    area_t             source = area_make(bed->a, from, LENGTH), target = area_make(bed->b, to, LENGTH);
    unsigned long long copied = transfer(bed, &source, &target, LENGTH, 4, what);

    want(bed->a, copied > 1, "%s, by messages: copies at the sender %llu", what, copied);
    area_free(&source);
    area_free(&target);
}

/* Other memory at the same address: of a new reservation or allocation, or of the same reservation. */
static void exchanged(bed_t *bed, place_t from)
{
    area_t target = area_make(bed->b, GPU1, LENGTH), source = area_make(bed->a, from, LENGTH);
    char  *first = source.memory;

    for (unsigned i = 0; i < 4; i++) {
        unsigned long long before = imported(), copied = transfer(bed, &source, &target, LENGTH, 10 + i, "exchanged");
        want(bed->a, first == source.memory, "%s: the same address", place_names[from]);
        want(bed->b, imported() - before == 1 && copied == 1, "%s, exchanged: imported %llu, copied %llu",
             place_names[from], imported() - before, copied);
        if (from == MAPPED0 && i % 2 == 0) {
            if (bed->a != NULL) {
                mapped_exchange((CUdeviceptr)(uintptr_t)source.memory, 0, 1);
            }
        } else {
            area_free(&source);
            source = area_make(bed->a, from, LENGTH);
        }
    }
    area_free(&source);
    area_free(&target);
}

/* A driver refuses: the receiver's to import memory, then the sender's to export it. That allocation goes by messages,
 * others do not. */
static void export_refused(bed_t *bed, place_t from)
{
    area_t source = area_make(bed->a, from, LENGTH), other = area_make(bed->a, from, LENGTH);
    area_t target = area_make(bed->b, GPU1, LENGTH);

    transfer(bed, &source, &target, LENGTH, 20, "before");
    if (bed->b != NULL) {
        logged("");
        gpu_fault("ipc_refused=1");
    }
    transfer(bed, &other, &target, LENGTH, 21, "import refused");
    if (bed->b != NULL) {
        gpu_fault("ipc_refused=0");
        want(bed->b, logged("messages carry it") == 1, "%s: one line says so", place_names[from]);
    }
    unsigned long long copied = transfer(bed, &other, &target, LENGTH, 22, "refused before");
    want(bed->a, copied > 1, "%s: what was refused once goes by messages", place_names[from]);
    copied = transfer(bed, &source, &target, LENGTH, 23, "open before");
    want(bed->a, copied == 0, "%s: what was open before stays open", place_names[from]);
    if (bed->a != NULL) {
        gpu_fault("export_refused=1");
    }
    area_t third = area_make(bed->a, from, LENGTH);
    copied       = transfer(bed, &third, &target, LENGTH, 24, "export refused");
    want(bed->a, copied > 1, "%s: without an export it goes by messages", place_names[from]);
    if (bed->a != NULL) {
        gpu_fault("export_refused=0");
    }
    area_free(&source);
    area_free(&other);
    area_free(&third);
    area_free(&target);
}

/* A driver refuses to export an allocation when the receiver asks for it, which has its handle. */
static void refused_when_asked(bed_t *bed, place_t from)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              source = area_make(bed->a, from, LENGTH), target = area_make(bed->b, GPU1, LENGTH);
    ucs_status_ptr_t    sent   = NULL;
    unsigned long long  copied = gpu_copies();

    area_fill(&source, 0, LENGTH, 50);
    copied = gpu_copies();
    if (bed->a != NULL) {
        logged("");
        sent = ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param);
        gpu_fault("export_refused=1");
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param));
        want(bed->b, status == UCS_OK && area_check(&target, 0, LENGTH, 0, 50)[0] == 'g',
             "%s, refused when asked: received, %s", place_names[from], status_name(status));
    } else {
        ucs_status_t status = bed_wait(bed, sent);
        copied              = gpu_copies() - copied;
        unsigned said       = logged("is not exported to a peer");
        want(bed->a, status == UCS_OK && copied > 1 && said == 1, "%s, refused when asked: %s, copies %llu, lines %u",
             place_names[from], status_name(status), copied, said);
        gpu_fault("export_refused=0");
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

/* Whether all threads of a process are stopped. */
static int is_stopped(pid_t process)
{
    char           path[64], state[512];
    struct dirent *one;
    int            all = 1;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    DIR *list = opendir(path);
    while ((one = readdir(list)) != NULL) {
        if (one->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/%d/task/%.16s/stat", (int)process, one->d_name);
        FILE *file = fopen(path, "r");
        all        = all && file != NULL && fgets(state, sizeof(state), file) != NULL && strstr(state, ") T ") != NULL;
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(list);
    return all;
}

/* The sender is stopped when the receiver asks for the descriptor: the message arrives when it goes on. */
static void stopped(bed_t *bed)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              source = area_make(bed->a, MAPPED0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);
    pid_t               sender = getpid();
    ucp_tag_recv_info_t info;
    ucs_status_ptr_t    sent = NULL;

    area_fill(&source, 0, LENGTH, 30);
    bed_transfer(bed, bed->a, &sender, sizeof(sender), &sender, sizeof(sender));
    if (bed->a != NULL) {
        sent = ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 7, &param);
        /* By TCP some of the message may not be sent yet. */
        bed_progress(bed);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, 7, -1, 0, &info) != NULL);
        kill(sender, SIGSTOP);
        BED_UNTIL(bed, is_stopped(sender));
        logged("");
        ucs_status_ptr_t received = ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 7, -1, &param);
        BED_UNTIL(bed, logged("messages carry it") > 0);
        want(bed->b, UCS_PTR_IS_PTR(received) && ucp_request_check_status(received) == UCS_INPROGRESS, "stopped");
        kill(sender, SIGCONT);
        ucs_status_t result = bed_wait(bed, received);
        want(bed->b, result == UCS_OK && area_check(&target, 0, LENGTH, 0, 30)[0] == 'g', "stopped: received, %s",
             status_name(result));
    }
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, sent);
        want(bed->a, status == UCS_OK, "stopped: sent, %s", status_name(status));
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

/* A child that lives on keeps neither the service nor what its parent has opened. */
static void forked(bed_t *bed)
{
    area_t source = area_make(bed->a, MAPPED0, LENGTH), target = area_make(bed->b, MAPPED1, LENGTH);
    int    status = 0, gate[2];
    char   byte;

    transfer(bed, &source, &target, LENGTH, 40, "before a child");
    if (pipe(gate) != 0) {
        _exit(7);
    }
    pid_t child = fork();
    if (child == 0) {
        close(gate[1]);
        ucp_worker_progress(bed->a != NULL ? bed->a->worker : bed->b->worker);
        _exit(read(gate[0], &byte, 1) != 0);
    }
    close(gate[0]);
    unsigned long long copied = transfer(bed, &source, &target, LENGTH, 41, "beside a child");
    want(bed->a, copied == 0, "beside a child: copies at the sender %llu", copied);
    area_free(&source);
    source = area_make(bed->a, MAPPED0, LENGTH);
    copied = transfer(bed, &source, &target, LENGTH, 42, "new, beside a child");
    want(bed->b, copied == 1, "new, beside a child: copies at the receiver %llu", copied);
    close(gate[1]);
    waitpid(child, &status, 0);
    want(bed->a != NULL ? bed->a : bed->b, status == 0, "a child");
    area_free(&source);
    area_free(&target);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    gpu_open();
    unsigned before = descriptors();
    bed_open(bed, &params);
    for (int from = MAPPED0; from < ALL_PLACES; from++) {
        for (int to = HOST; to < ALL_PLACES; to++) {
            direct(bed, (place_t)from, (place_t)to, LENGTH);
        }
        direct(bed, (place_t)from, GPU1, SHORTEST);
    }
    for (int to = MAPPED0; to < ALL_PLACES; to++) {
        for (int from = GPU0; from <= GPU1; from++) {
            area_t source = area_make(bed->a, (place_t)from, LENGTH), target = area_make(bed->b, (place_t)to, LENGTH);
            transfer(bed, &source, &target, LENGTH, (unsigned)to, text_of((place_t)from, (place_t)to));
            area_free(&source);
            area_free(&target);
        }
    }
    by_messages(bed, UNSHARED_MAPPED, GPU1);
    by_messages(bed, UNSHARED_POOL, MAPPED1);
    exchanged(bed, MAPPED0);
    exchanged(bed, POOL0);
    export_refused(bed, MAPPED0);
    export_refused(bed, POOL1);
    refused_when_asked(bed, MAPPED0);
    refused_when_asked(bed, POOL1);
    forked(bed);
    if (getenv("BED_NAMESPACE") == NULL) {
        stopped(bed);
    }
    bed_close(bed);
    pools_end();
    side_t *side = bed->a != NULL ? bed->a : bed->b;
    want(side, descriptors() == before, "descriptors %u, at first %u", descriptors(), before);
    want(bed->b, gpu_calls("cuMemMap") == gpu_calls("cuMemUnmap"), "mapped %llu, unmapped %llu",
         gpu_calls("cuMemMap"), gpu_calls("cuMemUnmap"));
    want(bed->b, gpu_calls("cuMemAddressReserve") == gpu_calls("cuMemAddressFree"), "no addresses are left");
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
