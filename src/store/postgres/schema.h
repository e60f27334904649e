/*
 * schema: the texts of schema_*.sql, made into C by tools/make_blob.py.
 */
#ifndef ONCE_STORE_POSTGRES_SCHEMA_H
#define ONCE_STORE_POSTGRES_SCHEMA_H

#include <stddef.h>

extern const char pg_schema_1[];
extern const size_t pg_schema_1_bytes;
extern const char pg_schema_2_canonical[];
extern const size_t pg_schema_2_canonical_bytes;
extern const char pg_schema_2[];
extern const size_t pg_schema_2_bytes;
extern const char pg_schema_3[];
extern const size_t pg_schema_3_bytes;
extern const char pg_schema_4[];
extern const size_t pg_schema_4_bytes;
extern const char pg_schema_5[];
extern const size_t pg_schema_5_bytes;
extern const char pg_schema_6[];
extern const size_t pg_schema_6_bytes;
extern const char pg_schema_6_evidence[];
extern const size_t pg_schema_6_evidence_bytes;
extern const char pg_schema_7[];
extern const size_t pg_schema_7_bytes;
extern const char pg_schema_8[];
extern const size_t pg_schema_8_bytes;

#endif
