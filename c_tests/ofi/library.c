/* The functions that libfabric.so.1 exports. */
#include "fabric.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void copy_table(void *to, size_t room, const void *from, size_t size)
{
    memset(to, 0, room);
    memcpy(to, from, size < room ? size : room);
    *(size_t *)to = size < room ? size : room;
}

void *real_symbol(const char *name)
{
    static void *_Atomic library;
    const char          *path = getenv("SOFT_OFI_LIBRARY");
    void                *symbol;

    if (library == NULL) {
        /* Providers call libfabric's functions, too, and mean their own. */
        library = dlopen(path != NULL ? path : "/usr/lib/" LIBRARY_FOLDER "/libfabric.so.1",
                         RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    }
    symbol = library == NULL ? NULL : dlsym(library, name);
    if (symbol == NULL) {
        rules_broken("no %s in the real library: %s", name, dlerror());
    }
    return symbol;
}

#define REAL(name) ((__typeof__(&(name)))real_symbol(#name))

uint32_t fi_version(void)
{
    return REAL(fi_version)();
}

const char *fi_strerror(int error)
{
    return REAL(fi_strerror)(error);
}

char *fi_tostr(const void *data, enum fi_type type)
{
    return REAL(fi_tostr)(data, type);
}

char *fi_tostr_r(char *text, size_t length, const void *data, enum fi_type type)
{
    return REAL(fi_tostr_r)(text, length, data, type);
}

void fi_freeinfo(struct fi_info *info)
{
    REAL(fi_freeinfo)(info);
}

struct fi_info *fi_dupinfo(const struct fi_info *info)
{
    return REAL(fi_dupinfo)(info);
}

struct fabric_table {
    struct fi_ops_fabric  ops;
    struct fi_ops_fabric *real;
};

static int open_domain(struct fid_fabric *fabric, struct fi_info *shown, struct fid_domain **domain, void *context)
{
    struct fabric_table *table = OUTER(fabric->ops, struct fabric_table, ops);
    struct fi_info      *info  = real_info(shown);
    int                  error = table->real->domain(fabric, info, domain, context);

    fi_freeinfo(info);
    if (error == 0) {
        restrict_domain(*domain);
    }
    return error;
}

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    struct fabric_table *table = OUTER(fabric->ops, struct fabric_table, ops);

    for (int i = 0; i < count; i++) {
        if (fids[i]->fclass == FI_CLASS_CQ && queue_has_held((struct fid_cq *)fids[i])) {
            return -FI_EAGAIN;
        }
    }
    return table->real->trywait(fabric, fids, count);
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    struct fi_fabric_attr real  = *attr;
    struct fabric_table  *table = calloc(1, sizeof(*table));
    int                   error;

    if (rules_name() != NULL && attr->prov_name != NULL && strcmp(attr->prov_name, rules_name()) == 0) {
        real.prov_name = (char *)rules_over();
    }
    error = REAL(fi_fabric)(&real, fabric, context);
    if (error != 0) {
        free(table);
        return error;
    }
    /* Lives as long as the process: a provider may return one object to several openers of a fabric. */
    COPY_TABLE(table->ops, (*fabric)->ops);
    table->real       = (*fabric)->ops;
    table->ops.domain = open_domain;
    if (table->ops.trywait != NULL) {
        table->ops.trywait = trywait;
    }
    (*fabric)->ops    = &table->ops;
    return 0;
}
