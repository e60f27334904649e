#include "cli/verify_remote.h"

#include <stdio.h>

#include "base/text.h"
#include "base/uuid.h"
#include "cli/operation.h"
#include "cli/out.h"
#include "cli/remote_read.h"
#include "evidence/verify.h"

enum {
    PAGE_ARENA_BYTES_MAX = 256 << 20, /* a page of answer_bytes_max, as tree and canonical form */
    DAMAGES_MAX = 100,                /* kept for display; all are counted */
};

static const char *const not_checked[] = {
    "that no entry is missing: those of other tenants are not shown",
    "signatures of checkpoints",
    "bodies against their digests",
    "decisions",
    NULL,
};

struct damage {
    uint64_t seq;
    char operation_id[40]; /* may be empty */
    const char *what;
};

/* What has been seen so far. */
struct audit {
    struct cli *cli;
    struct remote *remote;
    struct arena arena; /* for the current page */
    struct buf stored;  /* one entry in its stored form */

    struct remote_head head; /* as the server reported before the first page */
    bool head_seen;          /* an entry showed the hash of the head … */
    bool head_wrong;         /* … and it differs */

    uint64_t entries; /* entries whose hash was recomputed */
    uint64_t links;   /* adjacent entries that are chained */
    uint64_t gaps;    /* places with entries of other tenants */
    uint64_t first_seq;
    uint64_t last_seq; /* 0: no entry yet */
    int64_t last_ms;
    struct digest last_hash; /* computed, not taken from the server */

    uint64_t damage_count;
    struct damage damages[DAMAGES_MAX];
};

static void add_damage(struct audit *audit, const struct remote_entry *entry, const char *what)
{
    if (audit->damage_count < DAMAGES_MAX) {
        struct damage *damage = &audit->damages[audit->damage_count];
        *damage = (struct damage){
            .seq = entry == NULL ? audit->head.seq : entry->entry.seq, .what = what};
        if (entry != NULL && entry->words.operation_id.len < sizeof damage->operation_id) {
            memcpy(damage->operation_id,
                entry->words.operation_id.len == 0 ? "" : entry->words.operation_id.data,
                entry->words.operation_id.len);
        }
    }
    audit->damage_count++;
}

/* ---- checking ---------------------------------------------------------------------------- */

/* The head's hash is known from its entry, or from the entry after it. */
static void compare_head(
    struct audit *audit, const struct remote_entry *entry, const struct digest *hash)
{
    uint64_t seq = entry->entry.seq;
    const struct digest *shown = seq == audit->head.seq ? hash : &entry->prev_hash;
    if (audit->head.seq == 0 || (seq != audit->head.seq && seq != audit->head.seq + 1)) {
        return;
    }
    audit->head_seen = true;
    if (!digest_equal(shown, &audit->head.hash) && !audit->head_wrong) {
        audit->head_wrong = true;
        add_damage(audit, entry, "the head that the server names is not the chain's");
    }
}

static void check_link(struct audit *audit, const struct remote_entry *entry)
{
    static const struct digest zero;
    uint64_t seq = entry->entry.seq;
    bool is_first = audit->last_seq == 0;
    if (seq == 1 || (!is_first && seq == audit->last_seq + 1)) {
        const struct digest *before = seq == 1 ? &zero : &audit->last_hash;
        audit->links++;
        if (!digest_equal(&entry->prev_hash, before)) {
            add_damage(audit, entry, "not chained to the entry before it");
        }
    } else if (is_first || seq > audit->last_seq) {
        audit->gaps++;
    } else {
        add_damage(audit, entry, "its number is not greater than the one before it");
    }
    if (!is_first && entry->entry.time_ms < audit->last_ms) {
        add_damage(audit, entry, "its time is before that of the entry before it");
    }
}

/* The hash of what the server has stored; false: what it shows is not an entry. */
static bool link_of(struct audit *audit, const struct remote_entry *entry, struct digest *ret_hash)
{
    struct entry stored = {
        .seq = entry->entry.seq, .bytes = slice_of(entry->entry.json.data, entry->entry.json.size)};
    buf_clear(&audit->stored);
    if (!uuid_read(entry->words.chain_id, stored.chain_id) ||
        entry_contract(&stored, &audit->stored) != OK) {
        return false;
    }
    stored.bytes = buf_view(&audit->stored);
    entry_link(&entry->prev_hash, &stored, ret_hash);
    return true;
}

static void check_entry(struct audit *audit, const struct remote_entry *entry)
{
    struct digest hash = {{0}};
    bool is_whole = link_of(audit, entry, &hash);
    audit->entries++;
    if (!is_whole || !digest_equal(&hash, &entry->hash)) {
        add_damage(audit, entry, "its hash is not that of its bytes");
    }
    if (!slice_is(entry->words.chain_id, audit->head.chain_id)) {
        add_damage(audit, entry, "it belongs to a different chain");
    }
    check_link(audit, entry);
    compare_head(audit, entry, &hash);
    audit->first_seq = audit->first_seq == 0 ? entry->entry.seq : audit->first_seq;
    audit->last_seq = entry->entry.seq;
    audit->last_ms = entry->entry.time_ms;
    audit->last_hash = hash;
}

/* ---- fetching ---------------------------------------------------------------------------- */

static int check_page(struct audit *audit, const struct json_value *list)
{
    struct err err = {0};
    for (uint32_t i = 0; i < list->count; i++) {
        struct remote_entry entry;
        if (remote_read_entry(&list->items[i], &audit->arena, &entry, &err) != OK) {
            return remote_unreadable(audit->remote, &err);
        }
        check_entry(audit, &entry);
    }
    return CLI_OK;
}

/* Up to the head at the start, without the entries that our own reads add. */
static int fetch_entries(struct audit *audit)
{
    char cursor[CURSOR_BYTES_MAX] = "";
    struct remote_page page = {.is_last = false};
    int code = remote_head(audit->remote, &audit->arena, &audit->head);
    while (code == CLI_OK && !page.is_last && audit->last_seq <= audit->head.seq) {
        arena_clear(&audit->arena);
        code = remote_evidence(audit->remote, NULL, cursor, &audit->arena, &page);
        code = code == CLI_OK ? check_page(audit, page.entries) : code;
    }
    return code;
}

/* ---- reporting --------------------------------------------------------------------------- */

static size_t damages_kept(const struct audit *audit)
{
    return audit->damage_count < DAMAGES_MAX ? (size_t)audit->damage_count : DAMAGES_MAX;
}

static int print_json(const struct audit *audit)
{
    struct out_json whole;
    char hash[DIGEST_HEX_BYTES];
    struct jsonw *json = out_json_begin(&whole, 1 << 20);
    jsonw_bool(json, "ok", audit->damage_count == 0);
    jsonw_str(json, "server", remote_url(audit->remote));
    jsonw_str(json, "chain_id", audit->head.chain_id);
    jsonw_u64(json, "entries", audit->entries);
    jsonw_u64(json, "links", audit->links);
    jsonw_u64(json, "gaps", audit->gaps);
    jsonw_u64(json, "first_seq", audit->first_seq);
    jsonw_u64(json, "last_seq", audit->last_seq);
    jsonw_u64(json, "head_seq", audit->head.seq);
    jsonw_str(json, "head_hash", digest_put_hex(hash, &audit->head.hash));
    jsonw_bool(json, "head_compared", audit->head_seen);
    jsonw_open(json, "not_checked", '[');
    for (size_t i = 0; not_checked[i] != NULL; i++) {
        jsonw_str(json, NULL, not_checked[i]);
    }
    jsonw_close(json, ']');
    jsonw_u64(json, "damage_count", audit->damage_count);
    jsonw_open(json, "damages", '[');
    for (size_t i = 0; i < damages_kept(audit); i++) {
        jsonw_open(json, NULL, '{');
        jsonw_u64(json, "seq", audit->damages[i].seq);
        jsonw_str_some(json, "operation_id", audit->damages[i].operation_id);
        jsonw_str(json, "what", audit->damages[i].what);
        jsonw_close(json, '}');
    }
    jsonw_close(json, ']');
    return out_json_end(&whole);
}

static void print_damages(const struct audit *audit)
{
    for (size_t i = 0; i < damages_kept(audit); i++) {
        const struct damage *damage = &audit->damages[i];
        out_text("%sdamage%s: entry %llu: %s", out_tint(TINT_BAD), out_plain(),
            (unsigned long long)damage->seq, damage->what);
        if (damage->operation_id[0] != '\0') {
            out_text(", operation ");
            out_safe(slice_str(damage->operation_id));
        }
        out_text("\n");
    }
    if (audit->damage_count > DAMAGES_MAX) {
        out_text("%sdamage%s: and %llu more\n", out_tint(TINT_BAD), out_plain(),
            (unsigned long long)(audit->damage_count - DAMAGES_MAX));
    }
}

static int print_text(const struct audit *audit)
{
    print_damages(audit);
    if (audit->damage_count == 0) {
        out_text("%sok%s: the entries of '%s' are valid, as far as can be checked from outside\n",
            out_tint(TINT_GOOD), out_plain(), remote_url(audit->remote));
    }
    out_text("checked %s, %llu to %llu: each against its hash, %llu against the one "
             "before; others are between them in %s\n",
        COUNTED(audit->entries, "entry", "entries"), (unsigned long long)audit->first_seq,
        (unsigned long long)audit->last_seq, (unsigned long long)audit->links,
        COUNTED(audit->gaps, "place", "places"));
    out_text("head: entry %llu, %s\n", (unsigned long long)audit->head.seq,
        audit->head_wrong  ? "which is not what the server says"
        : audit->head_seen ? "which is what the server says"
                           : "not among those shown, so not compared");
    for (size_t i = 0; not_checked[i] != NULL; i++) {
        out_text("not checked: %s\n", not_checked[i]);
    }
    out_text("once verify where the journal is checks all of it\n");
    return out_finish();
}

int verify_remote(struct cli *cli, struct remote *remote)
{
    struct audit *audit = arena_zalloc(&cli->arena, sizeof *audit);
    if (audit == NULL) {
        cli_say("out of memory");
        return CLI_UNCHECKED;
    }
    audit->cli = cli;
    audit->remote = remote;
    arena_init(&audit->arena, &mem_libc, PAGE_ARENA_BYTES_MAX);
    buf_init(&audit->stored, &mem_libc, PAGE_ARENA_BYTES_MAX);
    int code = fetch_entries(audit);
    buf_release(&audit->stored);
    arena_release(&audit->arena);
    if (code != CLI_OK) {
        return CLI_UNCHECKED;
    }
    code = cli->json ? print_json(audit) : print_text(audit);
    return code != CLI_OK ? CLI_UNCHECKED : audit->damage_count > 0 ? CLI_DAMAGE : CLI_OK;
}
