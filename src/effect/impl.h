/*
 * impl: shared by the files of the door of effects.
 *
 * effects.c has its state and its routes; create.c accepts effects; document.c shows one; list.c
 * lists and retries many; operate.c has the operator's actions; ack.c handles later
 * acknowledgements from a connector.
 */
#ifndef ONCE_EFFECT_IMPL_H
#define ONCE_EFFECT_IMPL_H

#include <pthread.h>

#include "api/query.h"
#include "api/routes.h"
#include "canon/jsonw.h"
#include "effect/effects.h"
#include "effect/intake.h"
#include "envelope/envelope.h"

enum { EFFECT_ANSWER_BYTES_MAX = 64 << 20 }; /* never reached: a page has its own bounds */

/* A fingerprint of a connector's secret: enough to see that the secret changed. */
struct secret_mark {
    const char *connector; /* a connector of that configuration */
    char hex[17];          /* first 16 digits of its SHA-256; empty: it has no secret */
};

struct effects {
    const struct mem *mem;
    struct door *door;
    const struct vault *vault;
    struct dispatch *dispatch; /* NULL: nobody sends */
    struct effects_settler settler;
    struct effect_intake *intake; /* NULL: without a vault */
    pthread_mutex_t lock;         /* guards config */
    struct config *config;
    struct secret_mark marks[CONFIG_CONNECTORS_MAX]; /* of config; only the reloading thread uses
                                                        them */
};

/* Read the secrets of all connectors for their marks; a secret that cannot be read has none. */
void effects_mark_secrets(
    const struct config *config, struct secret_mark ret_marks[CONFIG_CONNECTORS_MAX]);
/* The current configuration; release it with config_free. Only for code that does not wait. */
struct config *effects_config(struct effects *effects);
/* The sender of this request's effects. */
struct effect_sender effects_sender(
    const struct effects *effects, const struct api_request *request, const struct config *config);
/* Write the changes of a different configuration to the evidence. E_NOMEM, and the engine's
 * statuses. */
enum status effects_note_change(
    struct effects *effects, const struct config *config, struct err *err) MUST_CHECK;
/* A record is durable: offer it to the dispatcher, on this loop or DISPATCH_NO_LOOP. */
void effects_offer(struct effects *effects, unsigned loop, const struct record *record);
/* An effect's result is durable: notify its parent. */
void effects_settled(struct effects *effects, const struct record *record);
enum { EFFECT_RACES_MAX = 64 }; /* lost for the command of an effect; then it is left out */
/* Read the command of an effect, for the commit that acknowledges the effect: query->query.record.
 * then is its answer, and is called at once, with no record, if the effect has no command. */
void effects_read_command(struct api_query *query, struct api_request *request,
    const struct record *effect, const struct effect_detail *detail,
    void (*then)(struct api_query *query));
/* An id in a path: "eff_…". False: it is malformed; the request has been answered. */
bool effects_id(struct api_request *request, struct op_id *ret_id) MUST_CHECK;
void effects_refuse_missing(struct api_request *request);
/* Refuse, because the effect's status does not allow this. */
void effects_refuse_status(struct api_request *request, const struct record *record);
/* The body, or an empty object where it is absent. False: the request has been answered. */
bool effects_body(struct api_request *request, const struct json_value **ret_value) MUST_CHECK;

/* An effect, with the parts that are shown. */
struct effect_document {
    const struct record *record;
    const struct record *compensation; /* NULL: not read, or absent */
    struct slice request_body;         /* sealed; may be empty */
    const char *decision;              /* NULL: not the answer to an arrival */
    bool has_payload;                  /* payload is shown */
};
/* Write the members of an open object. E_CORRUPT, E_NOMEM, E_INVALID: as for effect_detail_decode
 * and vault_open. */
enum status effect_document_put(struct jsonw *json, struct effects *effects, struct arena *arena,
    const struct effect_document *document, struct err *err) MUST_CHECK;
/* Answer with the document of this effect, read again. */
struct effect_show {
    struct op_id id;
    unsigned status;      /* of the answer */
    const char *decision; /* as above */
};
void effects_show(struct api_request *request, const struct effect_show *show);

/* Handlers. */
void effect_create(struct api_request *request);
void effect_get(struct api_request *request);
void effect_list(struct api_request *request);
void effect_retry_many(struct api_request *request);
void effect_retry(struct api_request *request);
void effect_cancel(struct api_request *request);
void effect_resolve(struct api_request *request);
void effect_compensate(struct api_request *request);
void effect_acknowledge(struct api_request *request);

#endif
