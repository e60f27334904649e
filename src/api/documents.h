/*
 * documents: turns decisions into documents (docs/api.md). The document of an operation is in
 * engine/operation_document.h.
 *
 * Promises:  a replay gives the outcome as that document does (P3). The answer to a change is at
 *            most api_document_bytes_max long, so that room for it can be reserved before the
 *            change.
 */
#ifndef ONCE_API_DOCUMENTS_H
#define ONCE_API_DOCUMENTS_H

#include "api/call.h"

/* The most bytes that the document about this call's change can need. */
size_t api_document_bytes_max(const struct api_call *call);
/* Append the document to out, or return the problem. E_NOMEM: there is no room, and out is
 * unchanged. */
enum status api_document_of(
    struct api_call *call, struct buf *out, struct api_document *ret_document) MUST_CHECK;

#endif
