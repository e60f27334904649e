/*
 * libpq: PostgreSQL's client library, loaded when a store is first opened (base/library.h).
 *
 * It replaces <libpq-fe.h> in this folder. A function that the list does not have cannot be called:
 * the program does not link.
 */
#ifndef ONCE_STORE_POSTGRES_LIBPQ_H
#define ONCE_STORE_POSTGRES_LIBPQ_H

#include <libpq-fe.h>

#include "base/library.h"

/* clang-format off */
#define LIBPQ_FUNCTIONS(F) \
    F(PQbackendPID) F(PQclear) F(PQcmdStatus) F(PQconnectdbParams) F(PQconninfoFree) \
    F(PQconninfoParse) F(PQconsumeInput) F(PQenterPipelineMode) F(PQerrorMessage) F(PQexec) \
    F(PQexecParams) F(PQfinish) F(PQflush) F(PQfreemem) F(PQgetResult) F(PQgetisnull) \
    F(PQgetlength) F(PQgetvalue) F(PQisBusy) F(PQnfields) F(PQnotifies) F(PQntuples) \
    F(PQparameterStatus) F(PQpipelineSync) F(PQresultErrorField) F(PQresultErrorMessage) \
    F(PQresultStatus) F(PQsendPrepare) F(PQsendQueryParams) F(PQsendQueryPrepared) \
    F(PQserverVersion) F(PQsetNoticeProcessor) F(PQsetNoticeReceiver) F(PQsetnonblocking) \
    F(PQsocket) F(PQstatus) F(PQtransactionStatus)
/* clang-format on */

struct libpq {
    LIBPQ_FUNCTIONS(LIBRARY_MEMBER)
};
extern struct libpq libpq;

/* Before anything else of it is called: pg_target_read does it. E_UNAVAILABLE. */
enum status libpq_load(struct err *err) MUST_CHECK;

#define PQbackendPID         libpq.PQbackendPID
#define PQclear              libpq.PQclear
#define PQcmdStatus          libpq.PQcmdStatus
#define PQconnectdbParams    libpq.PQconnectdbParams
#define PQconninfoFree       libpq.PQconninfoFree
#define PQconninfoParse      libpq.PQconninfoParse
#define PQconsumeInput       libpq.PQconsumeInput
#define PQenterPipelineMode  libpq.PQenterPipelineMode
#define PQerrorMessage       libpq.PQerrorMessage
#define PQexec               libpq.PQexec
#define PQexecParams         libpq.PQexecParams
#define PQfinish             libpq.PQfinish
#define PQflush              libpq.PQflush
#define PQfreemem            libpq.PQfreemem
#define PQgetResult          libpq.PQgetResult
#define PQgetisnull          libpq.PQgetisnull
#define PQgetlength          libpq.PQgetlength
#define PQgetvalue           libpq.PQgetvalue
#define PQisBusy             libpq.PQisBusy
#define PQnfields            libpq.PQnfields
#define PQnotifies           libpq.PQnotifies
#define PQntuples            libpq.PQntuples
#define PQparameterStatus    libpq.PQparameterStatus
#define PQpipelineSync       libpq.PQpipelineSync
#define PQresultErrorField   libpq.PQresultErrorField
#define PQresultErrorMessage libpq.PQresultErrorMessage
#define PQresultStatus       libpq.PQresultStatus
#define PQsendPrepare        libpq.PQsendPrepare
#define PQsendQueryParams    libpq.PQsendQueryParams
#define PQsendQueryPrepared  libpq.PQsendQueryPrepared
#define PQserverVersion      libpq.PQserverVersion
#define PQsetNoticeProcessor libpq.PQsetNoticeProcessor
#define PQsetNoticeReceiver  libpq.PQsetNoticeReceiver
#define PQsetnonblocking     libpq.PQsetnonblocking
#define PQsocket             libpq.PQsocket
#define PQstatus             libpq.PQstatus
#define PQtransactionStatus  libpq.PQtransactionStatus

#endif
