/* The parts of the software libcuda. `lock` guards every table; a function takes it unless its name says `locked`. */
#ifndef SOFT_CUDA_SOFT_H
#define SOFT_CUDA_SOFT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "driver.h"

enum { MAX_DEVICES = 16, PAGE = 4096, GRANULARITY = 2 << 20 };

extern pthread_mutex_t lock;

/* ---- settings.c: the environment, read by cuInit ---- */
struct settings {
    int devices;
    bool peers;        /* devices reach each other's memory */
    bool strict;       /* a missing or wrong current context aborts */
    bool fabric;       /* fabric handles exist */
    bool concurrent;   /* the processor accesses managed memory while devices run */
    bool ranks;        /* links between devices differ in their pace */
    bool unordered;    /* devices see what adapters have written after a flush only */
    bool dmabuf;       /* adapters can register memory of devices */
    size_t memory;     /* bytes of each device */
    double gbps;       /* of a device's copies in one direction, all together; 0: no model of time */
    double across_gbps; /* of those between or within devices */
    const char *counts;
};
extern struct settings settings;
void settings_read(void);

/* ---- fault.c ---- */
enum fault {
    FAULT_LATE_US,       /* operations of streams end this long after their execution ... */
    FAULT_LATE_NTH,      /* ... all of them, or every n-th */
    FAULT_FAIL_NTH,      /* the n-th copy from now fails ... */
    FAULT_FAIL_CODE,     /* ... with this CUresult, CUDA_ERROR_ILLEGAL_ADDRESS unless set */
    FAULT_ALLOC_NTH,     /* the n-th allocation from now fails for lack of memory */
    FAULT_IPC_REFUSED,   /* handles of other processes cannot be opened */
    FAULT_EXPORT_REFUSED, /* no descriptor or fabric handle is made */
    FAULT_OPEN_US,        /* opening a handle of another process takes this long */
    FAULT_POOL_UNCHECKED, /* a pointer of another pool is opened in a pool, and leads to other memory */
    FAULTS,
};
uint64_t fault_value(enum fault fault);
bool fault_counts_down(enum fault fault); /* whether the n-th time is this one */
bool fault_every(enum fault fault);       /* whether this is an n-th time; n of 0 is every time */

/* ---- call.c: what each entry does first ---- */
struct call {
    const char *name;
    _Atomic uint64_t count;
    struct call *next;
    atomic_flag listed;
};
CUresult call_enter(struct call *call, bool needs_init);
/* CUDA_ERROR_INVALID_CONTEXT if there is no current context, or the sticky error of it. */
CUresult call_context(struct call *call, CUcontext current);
CUresult call_wrong_context(struct call *call);
void call_initialized(void);
extern __thread bool call_within; /* a function of cuLaunchHostFunc or cuStreamAddCallback: no calls from there */

#define CALL_BEFORE_INIT(entry, init)                                                    \
    static struct call call_ = {#entry, 0, NULL, ATOMIC_FLAG_INIT};                      \
    CUresult entered_ = call_enter(&call_, init);                                        \
    if (entered_ != CUDA_SUCCESS)                                                        \
        return entered_;
#define CALL(entry) CALL_BEFORE_INIT(entry, true)
#define CALL_CURRENT(entry, current)                                                     \
    CALL(entry)                                                                          \
    CUcontext current = context_current();                                               \
    entered_ = call_context(&call_, current);                                            \
    if (entered_ != CUDA_SUCCESS)                                                        \
        return entered_;

/* ---- context.c ---- */
struct CUctx_st {
    CUdevice device;
    unsigned long long id;
    bool primary;
    unsigned retained;          /* a primary context is active while it is */
    _Atomic int sticky;         /* CUresult */
    _Atomic unsigned flags;     /* of cuCtxSetFlags */
    CUstream legacy;            /* the default stream */
    struct CUctx_st *next;
};
CUcontext context_current(void);
CUcontext context_primary(CUdevice device); /* whether it is active or not */
bool context_alive(CUcontext context);
bool device_valid(CUdevice device);

/* ---- memory.c: bytes of a device, and where they are mapped ---- */
struct memory {
    int fd;
    bool owns_fd;
    off_t offset;  /* within the file */
    size_t bytes;
    char *second;  /* the second mapping, which this library alone uses */
    CUdevice device;
    int handle_types;
    bool imported; /* another process' */
    unsigned long long id;
    unsigned refs;
    struct memory *next;
};
struct memory *memory_make(CUdevice device, size_t bytes, int handle_types, CUresult *result);
struct memory *memory_import(int fd, off_t offset, size_t bytes, bool owns_fd); /* NULL: not a file of this library */
int memory_file(CUdevice device, size_t bytes, int handle_types);
bool memory_file_parse(int fd, CUdevice *device, int *handle_types);
void memory_hold_locked(struct memory *memory);
void memory_drop(struct memory *memory);
void memory_drop_locked(struct memory *memory);
bool memory_alive_locked(const struct memory *memory);
size_t memory_used(CUdevice device);

/* ---- range.c: the addresses ---- */
enum range_kind {
    RANGE_DEVICE,     /* cuMemAlloc */
    RANGE_MANAGED,
    RANGE_HOST,       /* cuMemAllocHost */
    RANGE_REGISTERED, /* cuMemHostRegister */
    RANGE_IPC,        /* cuIpcOpenMemHandle */
    RANGE_VMM,        /* cuMemMap */
    RANGE_POOL,       /* cuMemAllocAsync */
    RANGE_RESERVED,   /* cuMemAddressReserve; lies below ranges of RANGE_VMM */
};
struct range {
    enum range_kind kind;
    uintptr_t start;
    size_t bytes, room; /* as asked for; as occupied */
    struct memory *memory; /* NULL: accessible by the processor */
    size_t offset;         /* within the memory */
    CUdevice device;
    CUcontext context;
    unsigned long long id;
    bool sync_memops;
    CUmemoryPool pool;
    CUmemAccess_flags access[MAX_DEVICES];
    unsigned opened; /* times, RANGE_IPC */
    ino_t inode;
    struct range *next;
};
uintptr_t range_space_locked(size_t bytes, size_t alignment); /* free addresses; 0: none */
bool range_in_space(uintptr_t address);
struct range *range_add_locked(struct range range); /* gives it an id */
struct range *range_find_locked(uintptr_t address); /* but RANGE_RESERVED */
struct range *range_reserved_locked(uintptr_t start);
struct range *range_of_inode_locked(ino_t inode);
bool range_overlaps_locked(uintptr_t start, size_t bytes);
void range_remove_locked(struct range *range); /* and frees it */
bool range_is_of_pool_locked(CUmemoryPool pool); /* whether there is one */
void ranges_of_pool_allow(CUmemoryPool pool, const CUmemAccess_flags access[MAX_DEVICES]);
void ranges_forget_context(CUcontext context);
bool range_is_device(const struct range *range);

/* ---- copy.c ---- */
CUresult copy_bytes(CUcontext context, uintptr_t to, uintptr_t from, size_t bytes);
CUresult copy_set(CUcontext context, uintptr_t to, unsigned char value, size_t bytes);

/* ---- stream.c ---- */
enum operation_kind { OP_COPY, OP_SET, OP_HOST, OP_CALLBACK, OP_EVENT, OP_WAIT, OP_FREE };
struct operation {
    enum operation_kind kind;
    uintptr_t to, from;
    size_t bytes;
    unsigned char value;
    union {
        CUhostFn host;
        CUstreamCallback callback;
    };
    void *data;
    CUevent event;
    CUstream after; /* OP_WAIT: until `number` operations of this stream have ended */
    uint64_t number;
    double posted; /* time, ns */
    struct operation *next;
};
CUstream stream_make(CUcontext context, unsigned flags, bool legacy);
CUstream stream_of(CUstream handle, CUcontext current); /* of a handle; NULL: invalid */
CUcontext stream_context(CUstream stream);
uint64_t stream_post(CUstream stream, struct operation operation); /* returns its number */
CUresult stream_wait(CUstream stream, uint64_t number);
bool stream_ended(CUstream stream, uint64_t number);
void streams_synchronize(CUdevice device);
void streams_end(CUcontext context);
void stream_hold(CUstream stream);
void stream_drop(CUstream stream);

/* ---- pace.c: the model of time ---- */
double pace_now(void); /* ns */
/*
 * Waits until a copy ends. It begins when it was posted, when what was posted to its stream before has ended, and when
 * the device has ended all earlier copies in its direction: not later because a thread of this library runs later.
 * `ended`: the end of what was before it in its stream; becomes its own end.
 */
void pace_copy(CUdevice device, const struct operation *operation, double *ended);

/* ---- event.c ---- */
void event_reached(CUevent event, uint64_t generation, double time); /* ns */

#endif
