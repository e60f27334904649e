#include "inbox/enqueue.h"

#include "base/check.h"
#include "engine/request_builder.h"
#include "inbox/frame.h"

enum {
    LEASE_SPARE_MS = 5000, /* by which a lease outlasts its call */
    DETAIL_BYTES_MAX = 1024,
};

/* Encrypted at rest, and bound to its record. */
static enum status seal_body(struct enqueued *made, const struct enqueue_of *of, struct err *err)
{
    const struct record_key *key = &made->engine.request.key;
    struct kept_event frame = {
        .type = of->event->type, .fields = of->fields, .bytes = of->event->bytes};
    size_t size = FRAME_HEAD_BYTES + frame.type.len + frame.fields.len + frame.bytes.len;
    struct vault_name name = {.tenant = key->tenant,
        .key_hash = slice_of(key->hash.bytes, sizeof key->hash.bytes),
        .kind = RECORD_DELIVERY};
    buf_init(&made->frame, of->mem, size);
    buf_init(&made->sealed, of->mem, size + VAULT_OVERHEAD_BYTES);
    frame_put(&made->frame, &frame);
    if (buf_status(&made->frame) != OK) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    return vault_seal(of->inbox->vault, &name, buf_view(&made->frame), &made->sealed, err);
}

static enum status put_detail(struct enqueued *made, const struct enqueue_of *of, struct err *err)
{
    struct jsonw json = {.out = &made->detail};
    struct slice id = of->event->id;
    buf_init(&made->detail, of->mem, LIMIT_DETAIL_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    if (id.len > 0 && id.len <= DETAIL_BYTES_MAX / 2) {
        jsonw_bytes(&json, "event_id", id);
    }
    if (of->event->type.len <= DETAIL_BYTES_MAX / 4) {
        jsonw_bytes(&json, "content_type", of->event->type);
    }
    jsonw_u64(&json, "bytes", of->event->bytes.len);
    if (of->message.len > 0) {
        jsonw_bytes(&json, "message", of->message);
    }
    jsonw_close(&json, '}');
    return buf_status(&made->detail) == OK ? OK : err_set(err, E_NOMEM, "out of memory");
}

static void put_body(struct enqueued *made)
{
    struct engine_call *call = &made->engine;
    struct digest digest;
    call->request_body = buf_view(&made->sealed);
    digest_sha256(call->request_body.data, call->request_body.len, &digest);
    call->request.request =
        (struct body_ref){.digest = digest, .bytes = call->request_body.len, .retained = true};
    call->request.detail = buf_view(&made->detail);
}

enum status enqueue_make(struct enqueued *made, const struct enqueue_of *of, struct err *err)
{
    const struct config_source *config = of->source->config;
    struct engine *engine = door_engine(of->inbox->door);
    /* With an order it waits for its turn like any other. */
    bool is_granted = config->mode == CONFIG_MODE_SYNC && config->order_source_id == NULL;
    made->engine = (struct engine_call){
        .request = {.kind = is_granted ? REQUEST_BEGIN : REQUEST_ENQUEUE,
            .record_kind = RECORD_DELIVERY,
            .key = {.tenant = slice_str(config->tenant),
                .scope = of->source->rule.name,
                .key = of->event->key},
            .policy = {.window_ms = of->source->window_ms,
                .lease_ms = config->total_ms + LEASE_SPARE_MS,
                .on_unknown = config->on_unknown == CONFIG_DELIVERY_HOLD ? ON_UNKNOWN_HOLD
                                                                         : ON_UNKNOWN_RECONCILE},
            .source = of->event->source,
            .trace = of->trace,
            .door = RECORD_DOOR_INBOX,
            .holder = is_granted ? engine_incarnation(engine) : 0},
        .arena = of->arena};
    enum status status = record_key_seal_as(&made->engine.request.key, RECORD_DELIVERY, err);
    status = status == OK ? seal_body(made, of, err) : status;
    status = status == OK ? put_detail(made, of, err) : status;
    if (status == OK) {
        builder_fingerprint(
            &made->engine, engine, &of->event->payload.digest, of->event->payload.version);
        put_body(made);
        status = builder_check(&made->engine, err);
    }
    return status;
}

/* -Wswitch-enum: a new decision does not build until it has its place here. */
enum received_as received_as(enum decision_kind kind)
{
    switch (kind) {
    case DECISION_FIRST_SEEN:
    case DECISION_ENQUEUED: return RECEIVED_NEW;
    case DECISION_IN_PROGRESS:
    case DECISION_HELD_UNKNOWN: return RECEIVED_AGAIN;
    case DECISION_DUPLICATE_REPLAYED: return RECEIVED_LATE;
    case DECISION_CONFLICT_REJECTED: return RECEIVED_OTHER;
    case DECISION_STALE_VERSION: return RECEIVED_STALE;
    case DECISION_SEALED: /* no answers to a begin or an enqueue */
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_RESOLVED:
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_NOTHING:
    case DECISION_CLAIMED:
    case DECISION_DONE:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS: break;
    }
    ASSERT(false);
    return RECEIVED_OTHER;
}
