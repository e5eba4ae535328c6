/* A case of forks: what threads of the parent are doing does not concern the child's own VCQ. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

/* ThreadSanitizer supports no new thread in a child of a process with threads. */
#ifdef __SANITIZE_THREAD__
enum { FORKS = 0 };
#else
enum { FORKS = 60 };
#endif
enum { POSTERS = 2, CHILD_SECONDS = 5 };

static struct hello target;
static atomic_int enough;

static void add_once(utofu_vcq_hdl_t vcq)
{
    void *cbdata;

    GOOD(utofu_armw8(vcq, target.id, UTOFU_ARMW_OP_ADD, 1, target.stadd, 0, LOCAL, NULL));
    expect(vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_SUCCESS);
    utofu_poll_tcq(vcq, 0, &cbdata);
}

static void *add_on(void *argument)
{
    utofu_vcq_hdl_t vcq;

    (void)argument;
    GOOD(utofu_create_vcq(1, 0, &vcq));
    while (!atomic_load(&enough))
        add_once(vcq);
    return NULL;
}

void forked_threads_active(int socket)
{
    struct side *side = side_open(socket, 0);
    pthread_t threads[POSTERS];
    utofu_vcq_hdl_t vcq;
    int status;

    target = side_meet(side);
    for (int t = 0; t < POSTERS; t++)
        pthread_create(&threads[t], NULL, add_on, NULL);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();

        if (child == 0) {
            alarm(CHILD_SECONDS);
            set_node(2);
            GOOD(utofu_create_vcq(1, 0, &vcq));
            add_once(vcq);
            _exit(0);
        }
        EQUAL(waitpid(child, &status, 0), child);
        EQUAL(status, 0);
    }
    atomic_store(&enough, 1);
    for (int t = 0; t < POSTERS; t++)
        pthread_join(threads[t], NULL);
    side_signal(side);
}
