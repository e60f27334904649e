/*
 * preset: each kind of sender as data: how it signs, what names an event, how a body is split, how
 * its endpoint is confirmed, and how long it may resend an event.
 *
 * The numbers are those of enum config_preset, in the order of the setting's choices. A window is
 * at least twice as long as the sender retries by itself, and longer than a person can have an
 * event sent again (OPS-5).
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
    PRESET_WHOLE,       /* the body is one event */
    PRESET_OF_META,     /* one event for each message, status or change of its entries */
    PRESET_OF_EVENTS,   /* CloudEvents: structured, binary, or a batch */
    PRESET_OF_ENVELOPE, /* one effect envelope (CCO-1) */
};

/* How an endpoint proves that it expects the events. */
enum preset_handshake {
    PRESET_HANDSHAKE_NONE,
    PRESET_HANDSHAKE_META,   /* GET with hub.challenge and the source's verify_token */
    PRESET_HANDSHAKE_SLACK,  /* a signed POST of type url_verification */
    PRESET_HANDSHAKE_EVENTS, /* OPTIONS with WebHook-Request-Origin */
};

struct preset {
    const char *name;
    struct signature_rule signature;
    bool is_signed; /* it needs a secret. Otherwise a secret is optional, as a bearer token that the
                       sender must send */
    enum preset_split split;
    /* What names an event of PRESET_WHOLE: a field, or a member of the body by its pointer. If it
     * is absent, the body's digest names the event. */
    struct slice id_field;
    struct slice id_field_again; /* used if the first is absent */
    struct slice id_pointer;
    bool is_id_signed; /* else the body's digest is part of the key: a stranger who replays a body
                          could give it any id */
    enum preset_handshake handshake;
    /* Pointers to members that differ between two sends of one event: not part of the
     * fingerprint. */
    const char *ignored[PRESET_IGNORED_MAX];
    const char *passed; /* prefixes of the fields passed to the handler, separated by blanks */
    int64_t horizon_ms; /* how long the sender may resend, by itself or at a person's request */
    int64_t window_ms;  /* how long duplicates are recognised, unless the source says otherwise */
};

extern const struct preset presets[PRESETS];
/* False: no preset has that name. */
bool preset_find(struct slice name, enum preset_kind *ret_kind) MUST_CHECK;
/* Whether a field of this name is passed to the handler. */
bool preset_passes(const struct preset *preset, struct slice name);

#endif
