/* Macros for bits, pointers and compiler attributes that the other headers and programs use. */

#ifndef RUCP_UCS_SYS_COMPILER_DEF_H
#define RUCP_UCS_SYS_COMPILER_DEF_H

#include <stddef.h>
#include <stdint.h>

/* Around declarations that C++ should link as C. */
#ifdef __cplusplus
#define BEGIN_C_DECLS extern "C" {
#define END_C_DECLS }
#else
#define BEGIN_C_DECLS
#define END_C_DECLS
#endif

/* Bits. */
#define UCS_BIT(i) (1ul << (i))
#define UCS_MASK(i) ((i) >= 64 ? ~0ul : UCS_BIT(i) - 1)
#define UCS_BIT_GET(value, i) (((value) & UCS_BIT(i)) != 0)

/* Attributes of functions. */
#define UCS_F_ALWAYS_INLINE inline __attribute__((always_inline))
#define UCS_F_CTOR __attribute__((constructor))
#define UCS_F_DTOR __attribute__((destructor))
#define UCS_F_MAYBE_UNUSED __attribute__((unused))
#define UCS_F_NOINLINE __attribute__((noinline))
#define UCS_F_NON_NULL __attribute__((nonnull))
#define UCS_F_NORETURN __attribute__((noreturn))
#define UCS_F_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define UCS_F_PURE __attribute__((pure))

/* Attributes of types and variables. */
#define UCS_S_MAY_ALIAS __attribute__((may_alias))
#define UCS_S_PACKED __attribute__((packed))
#define UCS_V_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define UCS_V_UNUSED __attribute__((unused))

/* Hints. */
#define ucs_likely(x) __builtin_expect(x, 1)
#define ucs_unlikely(x) __builtin_expect(x, 0)
#define ucs_is_constant(x) __builtin_constant_p(x)
#define ucs_compiler_fence() __asm__ volatile("" ::: "memory")
#define ucs_read_prefetch(ptr) __builtin_prefetch(ptr, 0, 3)
#define ucs_write_prefetch(ptr) __builtin_prefetch(ptr, 1, 3)

/* Types and members. */
#define ucs_typeof(x) __typeof__(x)
#define ucs_offsetof(type, member) ((unsigned long)offsetof(type, member))
#define ucs_container_of(ptr, type, member) \
    ((type *)(void *)((char *)(void *)(ptr) - ucs_offsetof(type, member)))
#define ucs_field_sizeof(type, field) sizeof(((type *)0)->field)
#define ucs_field_type(type, field) ucs_typeof(((type *)0)->field)
#define ucs_same_type(a, b) __builtin_types_compatible_p(a, b)
#define ucs_static_array_size(array) (sizeof(array) / sizeof((array)[0]))

/* Pointers. */
#define UCS_PTR_BYTE_OFFSET(ptr, bytes) ((void *)((intptr_t)(ptr) + (intptr_t)(bytes)))
#define UCS_PTR_TYPE_OFFSET(ptr, type) ((void *)((ucs_typeof(type) *)(ptr) + 1))
#define UCS_PTR_BYTE_DIFF(from, to) ((ptrdiff_t)((uintptr_t)(to) - (uintptr_t)(from)))

/* Does not compile when the condition is false. */
#define UCS_STATIC_ASSERT(condition) \
    do { \
        typedef char ucs_static_assert_[(condition) ? 1 : -1] UCS_V_UNUSED; \
    } while (0)

#endif /* RUCP_UCS_SYS_COMPILER_DEF_H */
