/*
 * openapi: the document of openapi.json, as the build put it into the program.
 */
#ifndef ONCE_API_OPENAPI_H
#define ONCE_API_OPENAPI_H

#include <stddef.h>

extern const char api_openapi_json[];
extern const size_t api_openapi_json_bytes;

#endif
