//! Matching of messages and receives: order, wildcards, probes, synchronous and persistent sends, truncation, cancel,
//! self.

#include "mapped_ucp.h"

#define COMM MPI_COMM_WORLD

/* From the smallest inline message to one that every library sends by rendezvous. */
static const size_t sizes[] = {0, 1, 8, 64, 100, 1000, 4096, 8192, 8300, 20000, 65536, 300000, 1 << 20};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LARGEST = 1 << 20 };

static int count_of(const MPI_Status *status)
{
    int count;

    MPI_Get_count(status, MPI_BYTE, &count);
    return count;
}

/** Every rank exchanges every size with every rank, itself included, all at once. */
static void all_pairs(void)
{
    MPI_Request *requests = allocate(2 * (size_t)world_size * sizeof(*requests));
    char **out = allocate((size_t)world_size * sizeof(*out)), **in = allocate((size_t)world_size * sizeof(*in));

    for (unsigned s = 0; s < SIZES; s++) {
        for (int peer = 0; peer < world_size; peer++) {
            out[peer] = allocate(sizes[s]);
            in[peer] = allocate(sizes[s]);
            fill(out[peer], sizes[s], (unsigned)(world_rank * world_size + peer) + s);
            MPI_Irecv(in[peer], (int)sizes[s], MPI_BYTE, peer, (int)s, COMM, &requests[2 * peer]);
            MPI_Isend(out[peer], (int)sizes[s], MPI_BYTE, peer, (int)s, COMM, &requests[2 * peer + 1]);
        }
        MPI_Waitall(2 * world_size, requests, MPI_STATUSES_IGNORE);
        for (int peer = 0; peer < world_size; peer++) {
            verify(in[peer], sizes[s], (unsigned)(peer * world_size + world_rank) + s, "all pairs");
            free(in[peer]);
            free(out[peer]);
        }
    }
    free(out);
    free(in);
    free(requests);
    passed("all pairs, all sizes");
}

/** Sends the messages of `wildcard_order`: one after the other, or all at once so that they queue up. */
static void send_in_order(int messages, int at_once)
{
    MPI_Request *requests = allocate((size_t)messages * sizeof(*requests));
    char **out = allocate((size_t)messages * sizeof(*out));

    for (int i = 0; i < messages; i++) {
        size_t size = sizes[(i * 5) % SIZES];

        out[i] = allocate(size);
        fill(out[i], size, (unsigned)(world_rank * messages + i));
        MPI_Isend(out[i], (int)size, MPI_BYTE, 0, i, COMM, &requests[i]);
        if (!at_once) {
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        }
    }
    MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < messages; i++) {
        free(out[i]);
    }
    free(out);
    free(requests);
}

/** Messages from one rank arrive in the order they were sent, whatever their sizes and however they are received. */
static void wildcard_order(int at_once)
{
    enum { MESSAGES = 60 };
    int *next = calloc((size_t)world_size, sizeof(*next));
    char *in = allocate(LARGEST);

    if (world_rank != 0) {
        send_in_order(MESSAGES, at_once);
    }
    for (int i = 0; world_rank == 0 && i < MESSAGES * (world_size - 1); i++) {
        MPI_Status status;
        int source;

        MPI_Recv(in, LARGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, COMM, &status);
        source = status.MPI_SOURCE;
        CHECK(source > 0 && source < world_size, "received from rank %d", source);
        CHECK(status.MPI_TAG == next[source], "rank %d: message %d arrived when %d was due", source, status.MPI_TAG,
              next[source]);
        CHECK(count_of(&status) == (int)sizes[(next[source] * 5) % SIZES], "message %d has %d bytes", status.MPI_TAG,
              count_of(&status));
        verify(in, (size_t)count_of(&status), (unsigned)(source * MESSAGES + next[source]), "wildcard receive");
        next[source]++;
    }
    free(in);
    free(next);
    passed(at_once ? "wildcard receives keep the order of each sender, all at once"
                   : "wildcard receives keep the order of each sender");
}

/** Floods of small messages fill every queue: each is followed by an empty one that must not overtake it. */
static void flood(void)
{
#ifndef FEW
    enum { MESSAGES = 2000, BATCH = 100, WORDS = 400 };
#else /* where every packet is made by an emulated processor: c_tests/rxe */
    enum { MESSAGES = 200, BATCH = 100, WORDS = 400 };
#endif
    int left = (world_rank + world_size - 1) % world_size, right = (world_rank + 1) % world_size;
    int (*out)[WORDS] = allocate(sizeof(*out) * BATCH), in[WORDS];
    MPI_Request requests[2 * BATCH], receive;
    int flag, received = 0;
    MPI_Status status;

    MPI_Irecv(in, WORDS, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, COMM, &receive);
    for (int sent = 0; sent < MESSAGES || received < 2 * MESSAGES;) {
        int batch = sent < MESSAGES ? BATCH : 0;

        for (int i = 0; i < batch; i++, sent++) {
            int words = 1 + sent * 37 % WORDS;

            for (int w = 0; w < words; w++) {
                out[i][w] = sent * WORDS + w;
            }
            MPI_Isend(out[i], words, MPI_INT, right, sent % 1000, COMM, &requests[2 * i]);
            MPI_Isend(NULL, 0, MPI_INT, right, 1000, COMM, &requests[2 * i + 1]);
        }
        for (flag = 1; flag && received < 2 * MESSAGES;) {
            MPI_Test(&receive, &flag, &status);
            if (flag) {
                int number = received / 2, words = received % 2 ? 0 : 1 + number * 37 % WORDS;

                CHECK(status.MPI_SOURCE == left && status.MPI_TAG == (received % 2 ? 1000 : number % 1000) &&
                          count_of(&status) == 4 * words,
                      "flood: message %d of %d has tag %d and %d bytes from %d", received, 2 * MESSAGES, status.MPI_TAG,
                      count_of(&status), status.MPI_SOURCE);
                for (int w = 0; w < words; w++) {
                    CHECK(in[w] == number * WORDS + w, "flood: word %d of message %d is %d", w, number, in[w]);
                }
                received++;
                if (received < 2 * MESSAGES) {
                    MPI_Irecv(in, WORDS, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, COMM, &receive);
                }
            }
        }
        for (flag = 0; batch > 0 && !flag;) {
            MPI_Testall(2 * batch, requests, &flag, MPI_STATUSES_IGNORE);
        }
    }
    free(out);
    passed("floods keep their order");
}

/** Receives posted first match first, be they exact or wildcards; tags select among unexpected messages. */
static void posting_order(void)
{
    static const int posted_tags[] = {MPI_ANY_TAG, 7, MPI_ANY_TAG, 7, 5, MPI_ANY_TAG};
    static const int sent_tags[] = {7, 7, 5, 5, 7, 9};
    /* Which of the sent messages each posted receive must get. */
    static const int expected[] = {0, 1, 2, 4, 3, 5};
    enum { COUNT = sizeof(expected) / sizeof(expected[0]) };
    MPI_Request requests[COUNT];
    MPI_Status statuses[COUNT];
    int values[COUNT];

    if (world_rank == 1) {
        MPI_Barrier(COMM);
        for (int i = 0; i < COUNT; i++) {
            MPI_Send(&i, 1, MPI_INT, 0, sent_tags[i], COMM);
        }
        for (int i = 0; i < COUNT; i++) {
            MPI_Send(&i, 1, MPI_INT, 0, 100 + i, COMM);
        }
        MPI_Barrier(COMM);
    } else if (world_rank == 0) {
        for (int i = 0; i < COUNT; i++) {
            MPI_Irecv(&values[i], 1, MPI_INT, i % 2 ? 1 : MPI_ANY_SOURCE, posted_tags[i], COMM, &requests[i]);
        }
        MPI_Barrier(COMM);
        MPI_Waitall(COUNT, requests, statuses);
        for (int i = 0; i < COUNT; i++) {
            CHECK(values[i] == expected[i] && statuses[i].MPI_TAG == sent_tags[expected[i]] &&
                      statuses[i].MPI_SOURCE == 1,
                  "receive %d got message %d (tag %d), should get %d", i, values[i], statuses[i].MPI_TAG, expected[i]);
        }
        MPI_Barrier(COMM);
        for (int i = COUNT - 1; i >= 0; i--) {
            MPI_Recv(&values[i], 1, MPI_INT, 1, 100 + i, COMM, &statuses[0]);
            CHECK(values[i] == i && statuses[0].MPI_TAG == 100 + i, "unexpected message %d was taken for %d", values[i],
                  i);
        }
    } else {
        MPI_Barrier(COMM);
        MPI_Barrier(COMM);
    }
    passed("posting order, tags out of order");
}

/** Equal tags in two communicators never match. */
static void communicators_apart(void)
{
    int left = (world_rank + world_size - 1) % world_size, right = (world_rank + 1) % world_size;
    int in_world = -1, in_copy = -1, values[2] = {1000 + world_rank, 2000 + world_rank};
    MPI_Request requests[4];
    MPI_Comm copy;

    MPI_Comm_dup(COMM, &copy);
    MPI_Irecv(&in_copy, 1, MPI_INT, left, 3, copy, &requests[0]);
    MPI_Irecv(&in_world, 1, MPI_INT, left, 3, COMM, &requests[1]);
    MPI_Isend(&values[0], 1, MPI_INT, right, 3, COMM, &requests[2]);
    MPI_Isend(&values[1], 1, MPI_INT, right, 3, copy, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    CHECK(in_world == 1000 + left && in_copy == 2000 + left, "communicators mixed: %d and %d", in_world, in_copy);
    MPI_Comm_free(&copy);
    passed("communicators kept apart");
}

/** A synchronous send is not complete before its receive is posted, and is after. */
static void synchronous(void)
{
    for (unsigned s = 0; s < SIZES; s++) {
        char *buffer = allocate(sizes[s]);
        MPI_Request request;
        int done;

        if (world_rank == 0) {
            fill(buffer, sizes[s], s);
            MPI_Issend(buffer, (int)sizes[s], MPI_BYTE, 1, 11, COMM, &request);
            for (int i = 0; i < 200; i++) {
                MPI_Test(&request, &done, MPI_STATUS_IGNORE);
                CHECK(!done, "a synchronous send of %zu bytes completed without a receive", sizes[s]);
            }
            MPI_Barrier(COMM);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Ssend(buffer, (int)sizes[s], MPI_BYTE, 1, 12, COMM);
        } else {
            MPI_Barrier(COMM);
        }
        for (int tag = 11; world_rank == 1 && tag <= 12; tag++) {
            memset(buffer, 0, sizes[s]);
            MPI_Recv(buffer, (int)sizes[s], MPI_BYTE, 0, tag, COMM, MPI_STATUS_IGNORE);
            verify(buffer, sizes[s], s, "synchronous send");
        }
        free(buffer);
    }
    passed("synchronous sends");
}

/** A probe returns source, tag and full length; a message taken by a matched probe goes to its own receive only. */
static void probes(void)
{
    for (unsigned s = 0; s < SIZES; s++) {
        char *buffer = allocate(sizes[s]);
        MPI_Message message;
        MPI_Status status;
        int found = 0, value;

        if (world_rank == 1) {
            MPI_Request requests[2];

            fill(buffer, sizes[s], s);
            value = (int)s;
            MPI_Isend(buffer, (int)sizes[s], MPI_BYTE, 0, 21, COMM, &requests[0]);
            MPI_Isend(&value, 1, MPI_INT, 0, 21, COMM, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            MPI_Send(buffer, (int)sizes[s], MPI_BYTE, 0, 22, COMM);
        } else if (world_rank == 0) {
            MPI_Mprobe(MPI_ANY_SOURCE, 21, COMM, &message, &status);
            CHECK(status.MPI_SOURCE == 1 && count_of(&status) == (int)sizes[s], "mprobe: %d bytes of %zu",
                  count_of(&status), sizes[s]);
            MPI_Recv(&value, 1, MPI_INT, 1, 21, COMM, MPI_STATUS_IGNORE);
            CHECK(value == (int)s, "a receive got the message that mprobe had taken");
            MPI_Mrecv(buffer, (int)sizes[s], MPI_BYTE, &message, &status);
            CHECK(count_of(&status) == (int)sizes[s], "mrecv: %d bytes of %zu", count_of(&status), sizes[s]);
            verify(buffer, sizes[s], s, "matched probe");
            while (!found) {
                MPI_Iprobe(1, MPI_ANY_TAG, COMM, &found, &status);
            }
            CHECK(status.MPI_TAG == 22 && count_of(&status) == (int)sizes[s], "iprobe: tag %d, %d bytes",
                  status.MPI_TAG, count_of(&status));
            memset(buffer, 0, sizes[s]);
            MPI_Recv(buffer, (int)sizes[s], MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, COMM, MPI_STATUS_IGNORE);
            verify(buffer, sizes[s], s, "probed message");
        }
        free(buffer);
    }
    passed("probe, iprobe, mprobe");
}

/**
 * A message longer than the buffer is an error of class TRUNCATE, leaves the bytes behind the buffer unchanged, and
 * does not affect later ones.
 */
static void truncation(void)
{
    enum { GUARD = 64 };

    MPI_Comm_set_errhandler(COMM, MPI_ERRORS_RETURN);
    for (unsigned s = 1; s < SIZES; s++) {
        for (int expected = 0; expected < 2; expected++) {
            size_t room = sizes[s] / 2;
            char *buffer = allocate(sizes[s] + GUARD);
            MPI_Request request = MPI_REQUEST_NULL;
            int code, class = MPI_SUCCESS, value = -1;

            memset(buffer, 0x5a, sizes[s] + GUARD);
            if (world_rank == 0 && expected) {
                MPI_Irecv(buffer, (int)room, MPI_BYTE, 1, 31, COMM, &request);
            }
            MPI_Barrier(COMM);
            if (world_rank == 1) {
                value = (int)s;
                fill(buffer, sizes[s], s);
                MPI_Send(buffer, (int)sizes[s], MPI_BYTE, 0, 31, COMM);
                MPI_Send(&value, 1, MPI_INT, 0, 32, COMM);
            } else if (world_rank == 0) {
                if (!expected) {
                    MPI_Irecv(buffer, (int)room, MPI_BYTE, 1, 31, COMM, &request);
                }
                code = MPI_Wait(&request, MPI_STATUS_IGNORE);
                MPI_Error_class(code, &class);
                CHECK(class == MPI_ERR_TRUNCATE, "%zu bytes into %zu: error class %d, not MPI_ERR_TRUNCATE", sizes[s],
                      room, class);
                for (size_t i = room; i < sizes[s] + GUARD; i++) {
                    CHECK(buffer[i] == 0x5a, "truncated message wrote byte %zu of a buffer of %zu", i, room);
                }
                MPI_Recv(&value, 1, MPI_INT, 1, 32, COMM, MPI_STATUS_IGNORE);
                CHECK(value == (int)s, "the message after a truncated one is wrong");
            }
            free(buffer);
        }
    }
    MPI_Comm_set_errhandler(COMM, MPI_ERRORS_ARE_FATAL);
    passed("truncation");
}

/** Persistent requests carry new data each time they are started. */
static void persistent(void)
{
    int left = (world_rank + world_size - 1) % world_size, right = (world_rank + 1) % world_size;

    for (unsigned s = 0; s < SIZES; s++) {
        char *out = allocate(sizes[s]), *in = allocate(sizes[s]);
        MPI_Request requests[2];

        MPI_Recv_init(in, (int)sizes[s], MPI_BYTE, left, 41, COMM, &requests[0]);
        if (s % 2) {
            MPI_Send_init(out, (int)sizes[s], MPI_BYTE, right, 41, COMM, &requests[1]);
        } else {
            MPI_Ssend_init(out, (int)sizes[s], MPI_BYTE, right, 41, COMM, &requests[1]);
        }
        for (unsigned round = 0; round < 5; round++) {
            fill(out, sizes[s], (unsigned)world_rank + round * 16);
            MPI_Startall(2, requests);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            verify(in, sizes[s], (unsigned)left + round * 16, "persistent");
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
        free(out);
        free(in);
    }
    passed("persistent requests");
}

/**
 * Messages to the own rank, sent before and after the receive is posted; buffered sends; replaced buffers;
 * MPI_PROC_NULL as peer.
 */
static void self_and_others(void)
{
    int left = (world_rank + world_size - 1) % world_size, right = (world_rank + 1) % world_size;
    char *attached = allocate(LARGEST + MPI_BSEND_OVERHEAD);
    int length;

    MPI_Buffer_attach(attached, LARGEST + MPI_BSEND_OVERHEAD);
    for (unsigned s = 0; s < SIZES; s++) {
        char *out = allocate(sizes[s]), *in = allocate(sizes[s]);
        MPI_Request request;
        MPI_Status status;

        fill(out, sizes[s], s);
        MPI_Isend(out, (int)sizes[s], MPI_BYTE, world_rank, 51, COMM, &request);
        MPI_Recv(in, (int)sizes[s], MPI_BYTE, world_rank, 51, COMM, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        verify(in, sizes[s], s, "sent to self first");
        memset(in, 0, sizes[s]);
        MPI_Irecv(in, (int)sizes[s], MPI_BYTE, world_rank, 52, COMM, &request);
        MPI_Ssend(out, (int)sizes[s], MPI_BYTE, world_rank, 52, COMM);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        verify(in, sizes[s], s, "received from self first");

        fill(in, sizes[s], s + (unsigned)world_rank);
        MPI_Sendrecv_replace(in, (int)sizes[s], MPI_BYTE, right, 53, left, 53, COMM, MPI_STATUS_IGNORE);
        verify(in, sizes[s], s + (unsigned)left, "sendrecv_replace");
        fill(out, sizes[s], s + (unsigned)world_rank * 3);
        MPI_Bsend(out, (int)sizes[s], MPI_BYTE, right, 54, COMM);
        fill(out, sizes[s], 99);
        MPI_Recv(in, (int)sizes[s], MPI_BYTE, left, 54, COMM, MPI_STATUS_IGNORE);
        verify(in, sizes[s], s + (unsigned)left * 3, "buffered send");
        MPI_Barrier(COMM);

        MPI_Sendrecv(out, (int)sizes[s], MPI_BYTE, MPI_PROC_NULL, 55, in, (int)sizes[s], MPI_BYTE, MPI_PROC_NULL, 55,
                     COMM, &status);
        CHECK(status.MPI_SOURCE == MPI_PROC_NULL && count_of(&status) == 0, "received something from MPI_PROC_NULL");
        free(out);
        free(in);
    }
    MPI_Buffer_detach(&attached, &length);
    free(attached);
    passed("self, buffered, replaced, MPI_PROC_NULL");
}

/** A cancelled receive completes as cancelled and leaves its message to the next one. */
static void cancel(void)
{
    int left = (world_rank + world_size - 1) % world_size, right = (world_rank + 1) % world_size;
    int value = -1, other = -1, cancelled;
    MPI_Request request;
    MPI_Status status;

    MPI_Irecv(&value, 1, MPI_INT, left, 61, COMM, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled, "a receive that nothing had matched was not cancelled");
    MPI_Barrier(COMM);
    MPI_Sendrecv(&world_rank, 1, MPI_INT, right, 61, &other, 1, MPI_INT, left, 61, COMM, MPI_STATUS_IGNORE);
    CHECK(value == -1 && other == left, "a cancelled receive took the message: %d, %d", value, other);
    passed("cancel");
}

/** Requests complete in any order, each exactly once. */
static void wait_some(void)
{
    enum { COUNT = 32 };
    int left = (world_rank + world_size - 1) % world_size, right = (world_rank + 1) % world_size;
    MPI_Request requests[2 * COUNT];
    int out[COUNT], in[COUNT], seen[2 * COUNT] = {0}, indices[2 * COUNT], completed, flag = 0;

    for (int i = 0; i < COUNT; i++) {
        out[i] = world_rank * COUNT + i;
        MPI_Irecv(&in[i], 1, MPI_INT, left, 100 + COUNT - i, COMM, &requests[i]);
        MPI_Isend(&out[i], 1, MPI_INT, right, 100 + COUNT - i, COMM, &requests[COUNT + i]);
    }
    MPI_Waitany(2 * COUNT, requests, &indices[0], MPI_STATUS_IGNORE);
    seen[indices[0]]++;
    for (int total = 1; total < 3 * COUNT / 2; total += completed) {
        MPI_Waitsome(2 * COUNT, requests, &completed, indices, MPI_STATUSES_IGNORE);
        CHECK(completed != MPI_UNDEFINED, "waitsome found nothing to wait for at %d", total);
        for (int i = 0; i < completed; i++) {
            seen[indices[i]]++;
        }
    }
    while (!flag) {
        MPI_Testall(2 * COUNT, requests, &flag, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK(in[i] == left * COUNT + i, "message %d holds %d", i, in[i]);
        CHECK(seen[i] <= 1 && seen[COUNT + i] <= 1, "request %d completed twice", i);
    }
    passed("waitany, waitsome, testall");
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    CHECK(world_size >= 2, "needs two ranks or more");
    report_mapped_ucp();
    all_pairs();
    wildcard_order(0);
    wildcard_order(1);
    flood();
    posting_order();
    communicators_apart();
    synchronous();
    probes();
    truncation();
    persistent();
    self_and_others();
    cancel();
    wait_some();
    MPI_Finalize();
    return 0;
}
