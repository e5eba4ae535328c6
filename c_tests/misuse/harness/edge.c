/* Copies that end where memory ends: an access to one byte too many crashes. */
#define _GNU_SOURCE
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *edge_copy(const void *data, size_t length)
{
    size_t page  = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = (length + page - 1) / page * page;
    char  *memory;

    memory = mmap(NULL, inner + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + inner, page, PROT_NONE) != 0) {
        abort();
    }
    return memcpy(memory + inner - length, data, length);
}
