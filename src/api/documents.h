/*
 * documents: documents out of decisions (DESIGN section 8); that of an operation is in
 * engine/operation_document.h.
 *
 * Promises:  a replay gives the outcome as that document does (P3). The answer to a change fits
 *            what api_document_bytes_max says, so that room for it can be had before the change.
 */
#ifndef ONCE_API_DOCUMENTS_H
#define ONCE_API_DOCUMENTS_H

#include "api/call.h"

/* Bytes that the document about a change made by this call can need. */
size_t api_document_bytes_max(const struct api_call *call);
/* Append the document to out, or say which problem it is. E_NOMEM: there is no room, and then out
 * is as it was. */
enum status api_document_of(
    struct api_call *call, struct buf *out, struct api_document *ret_document) MUST_CHECK;

#endif
