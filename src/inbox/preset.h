/*
 * preset: what is known of each kind of sender, as data: how it signs, what names an event, how a
 * body is split, how its endpoint is confirmed, and how long it may send an event again.
 *
 * The numbers are those of enum config_preset, in the order of the setting's choices. A window is
 * at least twice the time for which the sender itself tries again, and longer than a person can
 * have it sent again (OPS-5).
 */
#ifndef ONCE_INBOX_PRESET_H
#define ONCE_INBOX_PRESET_H

#include "inbox/signature.h"

enum preset_kind {
    PRESET_STRIPE,
    PRESET_GITHUB,
    PRESET_SHOPIFY,
    PRESET_SLACK,
    PRESET_META,
    PRESET_STANDARD_WEBHOOKS,
    PRESET_SVIX,
    PRESET_HMAC,
    PRESET_CLOUDEVENTS,
    PRESET_EFFECT,
    PRESET_NONE,
};
enum { PRESETS = PRESET_NONE + 1, PRESET_IGNORED_MAX = 4 };

/* How a body becomes events. */
enum preset_split {
    PRESET_WHOLE,       /* it is one */
    PRESET_OF_META,     /* one for each message, status or change of its entries */
    PRESET_OF_EVENTS,   /* CloudEvents: structured, binary, or a batch */
    PRESET_OF_ENVELOPE, /* one effect envelope (CCO-1) */
};

/* How an endpoint proves that it is meant. */
enum preset_handshake {
    PRESET_HANDSHAKE_NONE,
    PRESET_HANDSHAKE_META,   /* GET with hub.challenge and the source's verify_token */
    PRESET_HANDSHAKE_SLACK,  /* a signed POST of type url_verification */
    PRESET_HANDSHAKE_EVENTS, /* OPTIONS with WebHook-Request-Origin */
};

struct preset {
    const char *name;
    struct signature_rule signature;
    bool is_signed; /* it needs a secret. Without that a secret may still be given, as a bearer
                       token that the sender has to show */
    enum preset_split split;
    /* What names an event of PRESET_WHOLE: a field, or a member of the body by its pointer. Where
     * it is absent, the body's digest does. */
    struct slice id_field;
    struct slice id_field_again; /* where the first is absent */
    struct slice id_pointer;
    bool is_id_signed; /* else the body's digest is a part of the key: a stranger who replays a
                          body could give it any id */
    enum preset_handshake handshake;
    /* Members that differ between two sends of one event, by their pointers: no part of the
     * fingerprint. */
    const char *ignored[PRESET_IGNORED_MAX];
    const char *passed; /* beginnings of the fields that the handler gets, a blank between */
    int64_t horizon_ms; /* for which the sender tries again by itself, or by a person's click */
    int64_t window_ms;  /* for which duplicates are recognised, unless the source says */
};

extern const struct preset presets[PRESETS];
/* False: there is none of that name. */
bool preset_find(struct slice name, enum preset_kind *ret_kind) MUST_CHECK;
/* A field of this name goes on to the handler. */
bool preset_passes(const struct preset *preset, struct slice name);

#endif
