/*
 * detail: what only commands keep in their records (record.detail): a JSON object of at most
 * LIMIT_DETAIL_BYTES_MAX. It is also in the evidence, so it contains no secret: values are
 * redacted, and only the hash of a confirmation token is kept.
 *
 * Ownership: detail_read points into the bytes and into the arena.
 */
#ifndef ONCE_COMMAND_DETAIL_H
#define ONCE_COMMAND_DETAIL_H

#include "base/arena.h"
#include "base/buf.h"
#include "canon/digest.h"
#include "canon/json.h"

struct detail {
    struct slice command;    /* entity.action */
    struct slice command_id; /* as given; empty: absent */
    struct slice actor_id;
    struct slice effective_actor_id;
    struct slice target; /* JSON, redacted; empty: too long to keep */
    struct slice args;   /* likewise */
    bool is_key_given;
    bool is_read;      /* I0: not deduplicated */
    bool is_uncertain; /* an attempt may have taken effect, and nothing has settled that (P5) */
    /* The confirmation. */
    bool is_confirmed_by_step_up;
    struct digest token;     /* hash of the token that must be presented; zero: none is required */
    struct digest submitter; /* keyed hash of the submitter's credential; zero: it has none */
    int64_t confirmed_ms;    /* 0: not yet */
    struct slice confirmed_by;
    /* Effects that the handler returned. */
    uint64_t required;         /* not acknowledged yet, and waited for */
    uint64_t effects;          /* in all */
    uint64_t async;            /* of them: not waited for */
    struct slice waits_for;    /* JSON: [["payment.capture","<key>"],…]; empty: for none */
    struct slice made;         /* all of them, in the order of the answer, for as long as the record
                                  lives: its compensation undoes them (effect_list.h) */
    struct slice kept_outcome; /* sealed, base64url: the handler's answer, until the command ends */
    int64_t kept_code;         /* its status */
    /* After its end. */
    bool has_failed;         /* it ended because a required effect failed */
    int64_t compensating_ms; /* since when it is undone; 0: it is not */
    /* The last recovery that an operator asked for (recover.c); the first part that is left out if
     * the detail is too long. */
    struct slice recovery_id; /* empty: none */
    struct slice recovery_action;
    struct slice recovery_by; /* may be empty */
    int64_t recovery_ms;
};

/* A recovery, for the record of its command. */
struct detail_recovery {
    struct slice id;
    struct slice action;
    struct slice by; /* may be empty */
    int64_t ms;
};
/* Note it as the last one. */
void detail_set_recovery(struct detail *detail, const struct detail_recovery *recovery);

/* Append it. If it is too long, the arguments are left out, then the target, then the list
 * of what was made (and the command cannot be compensated as a whole). E_INVALID: the names
 * alone are too long. E_NOMEM. */
enum status detail_put(const struct detail *detail, struct buf *out) MUST_CHECK;
/* E_CORRUPT: it is not a command's detail. E_NOMEM. */
enum status detail_read(
    struct slice bytes, struct arena *arena, struct detail *ret_detail) MUST_CHECK;
/* Only the name of the command, which is written first. E_CORRUPT, E_NOMEM. */
enum status detail_command(
    struct slice bytes, struct arena *arena, struct slice *ret_command) MUST_CHECK;
/* The detail of a record with is_uncertain as given; empty if it is so already. E_CORRUPT,
 * E_NOMEM. */
enum status detail_mark(
    struct slice bytes, bool is_uncertain, struct arena *arena, struct slice *ret_bytes) MUST_CHECK;
/* The detail of a record with this recovery as the last one. E_CORRUPT, E_NOMEM. */
enum status detail_recovered(struct slice bytes, const struct detail_recovery *recovery,
    struct arena *arena, struct slice *ret_bytes) MUST_CHECK;

#endif
