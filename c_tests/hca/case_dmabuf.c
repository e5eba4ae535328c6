/* Memory of another device by a descriptor, which the software GPUs' memory stands for. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"

enum { PAGE = 4096, PAGES = 4 * PAGE, IOVA = 1 << 30 };
enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

/* A file of PAGES bytes, which are mapped at `*mapped`. */
static int file(const char *name, char **mapped)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    CHECK(fd >= 0 && ftruncate(fd, PAGES) == 0);
    *mapped = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(*mapped != MAP_FAILED);
    return fd;
}

static enum ibv_wc_status move(struct side *side, struct ibv_qp *qp, const struct hello *peer,
                               enum ibv_wr_opcode opcode, uint64_t address, const struct ibv_mr *mr)
{
    struct ibv_sge sge = {address, PAGE, mr->lkey};
    struct ibv_send_wr wr = rdma(opcode, peer, 0);

    wr.sg_list = &sge;
    wr.num_sge = 1;
    EQUAL(side_post(side, qp, &wr, 0, 0), 0);
    return side_poll(side).status;
}

static void refused(struct side *side, int fd, size_t length, int access, int expected)
{
    CHECK(ibv_reg_dmabuf_mr(side->pd, 0, length, IOVA, fd, access) == NULL);
    EQUAL(errno, expected);
}

void dmabuf_active(int socket)
{
    struct side *side = side_open(socket, false);
    char *bytes, *others;
    int fd = file("soft-cuda.0.0", &bytes), other = file("other", &others);
    uint64_t before = counter("dmabufs");
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_mr *mr;

    refused(side, other, PAGES, ALL, EINVAL);
    refused(side, fd, PAGES + 1, ALL, EINVAL);
    refused(side, fd, PAGES, ALL | IBV_ACCESS_ON_DEMAND, EOPNOTSUPP);
    fault("dmabuf_refused=1");
    refused(side, fd, PAGES, ALL, ENOMEM);
    fault("dmabuf_refused=0");
    setenv("SOFT_HCA_DMABUF", "n", 1);
    refused(side, fd, PAGES, ALL, EOPNOTSUPP);
    setenv("SOFT_HCA_DMABUF", "y", 1);

    /* The memory begins at the position of the descriptor. */
    EQUAL(lseek(fd, PAGE, SEEK_SET), PAGE);
    refused(side, fd, PAGES, ALL, EINVAL);
    mr = ibv_reg_dmabuf_mr(side->pd, PAGE, 2 * PAGE, IOVA, fd, ALL);
    CHECK(mr != NULL);
    EQUAL(counter("dmabufs"), before + 1);
    /* It keeps the memory without the descriptor. */
    close(fd);
    pattern(bytes + 2 * PAGE, PAGE, 1);
    EQUAL(move(side, qp, &peer, IBV_WR_RDMA_WRITE, IOVA, mr), IBV_WC_SUCCESS);
    EQUAL(move(side, qp, &peer, IBV_WR_RDMA_READ, IOVA + PAGE, mr), IBV_WC_SUCCESS);
    CHECK(has_pattern(bytes + 3 * PAGE, PAGE, 1) && bytes[0] == 0 && bytes[PAGE] == 0);
    EQUAL(move(side, qp, &peer, IBV_WR_RDMA_WRITE, IOVA + PAGE + 1, mr), IBV_WC_LOC_PROT_ERR);
    EQUAL(ibv_dereg_mr(mr), 0);
    side_signal(side);
}
