/*
 * macros: array length and container of a member, which no function can provide.
 */
#ifndef ONCE_BASE_MACROS_H
#define ONCE_BASE_MACROS_H

#include <stddef.h>

/* The number of elements of an array; compilers refuse a pointer (-Wsizeof-pointer-div). */
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The object of this type whose member the pointer points to. The conditional is never evaluated:
 * it makes the compiler compare the pointer's type with the member's. */
#define CONTAINER_OF(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(1 ? (pointer) : &((type *)NULL)->member) - offsetof(type, member)))

#endif
