/*
 * past 800 lines because chains, ties and records are checked against each other in one pass.
 *
 * One pass over the entries in the store's order, then one over the records.
 *
 * Entries of one record come in the order of their decisions, except those that applications made
 * in their own transactions, which are chained later. So a first pass collects the operations of
 * such a chain, the main pass keeps all their entries, and these are decided again at the end, in
 * the order of the versions that they name.
 *
 * Others may write at the same time. A record that is newer than the entries read is checked again
 * after the entries that came since; it is damage only if none of them explains it.
 */
#include "evidence/verify_shared.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/uuid.h"
#include "evidence/checkpoint.h"
#include "evidence/entry_view.h"
#include "evidence/redecide.h"

enum {
    ENTRY_ARENA_BYTES_MAX = 4 << 20, /* one entry at its limits, and its tree */
    ENTRY_CANONICAL_BYTES_MAX = 1 << 20,
    RECORDS_ARENA_BYTES_MAX = 64 << 20, /* one page of records */
    RECORDS_PAGE = 512,
    RECENT_HASHES = 4096, /* for each chain: more than is committed while a checkpoint is made */
    SETTLE_TRIES = 20,    /* to see the ends of all chains while others write … */
    SETTLE_PAUSE_MS = 100,
};

/* One chain, as far as it was read. */
struct shared_chain {
    struct store_chain stored; /* as stored */
    struct checkpoint_key key; /* when is_signed */
    bool is_signed;
    uint64_t seq; /* of the last entry read, or of the last that was removed */
    struct digest hash;
    struct digest *recent; /* hashes of the last RECENT_HASHES entries, by seq; NULL: none yet */
    size_t recent_cap;     /* room for entries up to this one */
    uint64_t noted;        /* the entry that the last checkpoint read covers */
    uint64_t fence;        /* of its last grant */
    int64_t time_ms;       /* of its last entry */
};

/* An entry that is decided again at the end. */
struct kept_back {
    uint64_t prefix;  /* of the key's hash */
    uint64_t version; /* that it was decided on */
    int rank;         /* among several on one version: the change comes last */
    size_t order;     /* as read */
    struct entry entry;
};

/* A growing array of one type. */
struct list {
    void *items;
    size_t count;
    size_t cap;
};

/* What a checkpoint says about a different chain. */
struct tied {
    struct checkpoint_tie tie;
    char signer[37]; /* whose checkpoint it was */
};

/* A record that was newer than the entries read before it. */
struct newer {
    struct digest key_hash;
    struct op_id operation_id;
    uint64_t version;
};

struct shared {
    const struct verify_options *options;
    const struct mem *mem;
    struct store *store;
    struct verify_result result;
    struct list chains;   /* struct shared_chain */
    struct list prefixes; /* uint64_t, sorted: operations that applications decided on */
    struct list kept;     /* struct kept_back */
    struct list fences;   /* uint64_t: every grant */
    struct list newer;    /* struct newer */
    struct list ties;     /* struct tied: still to be compared */
    struct arena arena;   /* of one entry */
    struct buf scratch;   /* its canonical form */
    struct redecide redecide;
    struct entry_cursor cursor;      /* of the last entry of the main pass */
    bool outside_given;              /* a checkpoint kept elsewhere … */
    unsigned char outside_chain[16]; /* … which is about this chain */
    struct checkpoint outside;
    bool settled;       /* of all chains, at the last check */
    bool keeps_ends;    /* the store says where its chains end */
    bool is_new_chain;  /* the next entry is of a chain that is not known here */
    enum status status; /* why a visitor stopped; OK: none did */
    struct err err;
};

static void damage(struct shared *shared, const struct shared_chain *chain,
    const struct entry *entry, const char *format, ...) __attribute__((format(printf, 4, 5)));

static void damage(struct shared *shared, const struct shared_chain *chain,
    const struct entry *entry, const char *format, ...)
{
    struct verify_damage place = {.seq = entry == NULL ? 0 : entry->seq};
    va_list args;
    if (chain != NULL) {
        (void)uuid_put(place.chain_id, chain->stored.chain_id);
    }
    if (entry != NULL) {
        place.operation_id = entry->operation_id;
    }
    va_start(args, format);
    verify_damage_put(&shared->result, &place, format, args);
    va_end(args);
}

/* Room for one more item of this size; NULL: out of memory. */
static void *list_add(struct shared *shared, struct list *list, size_t size)
{
    ASSERT(list->count <= list->cap);
    if (list->count == list->cap) {
        size_t cap = list->cap == 0 ? 64 : 2 * list->cap;
        void *items = mem_resize(shared->mem, list->items, cap * size);
        if (items == NULL) {
            return NULL;
        }
        list->items = items;
        list->cap = cap;
    }
    return (char *)list->items + size * list->count++;
}

static bool stop(struct shared *shared, enum status status, const char *what)
{
    ASSERT(status != OK);
    shared->status = err_set(&shared->err, status, "%s", what);
    return false;
}

/* ---- chains ------------------------------------------------------------------------------- */

static struct shared_chain *chain_find(struct shared *shared, const unsigned char chain_id[16])
{
    struct shared_chain *chains = shared->chains.items;
    for (size_t i = shared->chains.count; i > 0; i--) { /* the newest are used most */
        if (memcmp(chains[i - 1].stored.chain_id, chain_id, 16) == 0) {
            return &chains[i - 1];
        }
    }
    return NULL;
}

static void chain_key(struct shared_chain *chain)
{
    static const unsigned char none[32];
    chain->is_signed = memcmp(chain->stored.public_key, none, sizeof none) != 0;
    checkpoint_key_make(chain->stored.chain_id, chain->stored.public_key, &chain->key);
}

/* A chain is new, or has grown. */
static bool on_chain(void *context, const struct store_chain *stored)
{
    struct shared *shared = context;
    struct shared_chain *chain = chain_find(shared, stored->chain_id);
    if (chain == NULL) {
        chain = list_add(shared, &shared->chains, sizeof *chain);
        if (chain == NULL) {
            return stop(shared, E_NOMEM, "out of memory for the chains");
        }
        *chain = (struct shared_chain){
            .stored = *stored, .seq = stored->removed_seq, .hash = stored->removed_hash};
        chain_key(chain);
        if (stored->removed_seq > 0) {
            redecide_gap(&shared->redecide, 0); /* the removed decisions are not known */
        }
    }
    chain->stored = *stored;
    shared->settled = shared->settled && stored->settled;
    shared->keeps_ends = shared->keeps_ends || stored->settled || stored->seq > 0;
    return true;
}

static enum status read_chains(struct shared *shared, struct err *err)
{
    shared->settled = true;
    enum status status = shared->store->ops->chains(shared->store, on_chain, shared, err);
    return status == OK && shared->status != OK
               ? err_set(err, shared->status, "%s", shared->err.text)
               : status;
}

/* A chain may have grown slightly beyond its tie because of concurrent commits: its last hashes are
 * kept. Older ties are not compared. */
static void check_tie(struct shared *shared, const struct tied *tied)
{
    const struct checkpoint_tie *tie = &tied->tie;
    unsigned char chain_id[UUID_BYTES];
    const struct shared_chain *chain =
        uuid_read(slice_str(tie->chain_id), chain_id) ? chain_find(shared, chain_id) : NULL;
    bool is_there = chain != NULL && tie->seq <= chain->seq;
    if (is_there &&
        (chain->seq - tie->seq >= RECENT_HASHES || tie->seq % RECENT_HASHES >= chain->recent_cap ||
            tie->seq <= chain->stored.removed_seq || chain->recent == NULL)) {
        return;
    }
    if (!is_there || !digest_equal(&chain->recent[tie->seq % RECENT_HASHES], &tie->hash)) {
        damage(shared, chain, NULL, "entry %llu is not the one that a checkpoint of chain %s says",
            (unsigned long long)tie->seq, tied->signer);
    }
}

static bool note_ties(struct shared *shared, const struct checkpoint *checkpoint)
{
    ASSERT(checkpoint->tie_count <= CHECKPOINT_TIES_MAX);
    for (size_t i = 0; i < checkpoint->tie_count; i++) {
        unsigned char chain_id[UUID_BYTES];
        struct tied tied = {.tie = checkpoint->ties[i]};
        const struct shared_chain *chain =
            uuid_read(slice_str(tied.tie.chain_id), chain_id) ? chain_find(shared, chain_id) : NULL;
        memcpy(tied.signer, checkpoint->chain_id, sizeof tied.signer);
        if (chain != NULL && chain->seq >= tied.tie.seq) {
            check_tie(shared, &tied);
            continue;
        }
        struct tied *later = list_add(shared, &shared->ties, sizeof *later);
        if (later == NULL) {
            return stop(shared, E_NOMEM, "out of memory for the checkpoints");
        }
        *later = tied;
    }
    return true;
}

/* The store says which keys are valid. An application's chain has no checkpoints. */
static bool on_checkpoint(
    struct shared *shared, struct shared_chain *chain, const struct entry *entry)
{
    ASSERT(entry->kind == ENTRY_CHECKPOINT);
    struct checkpoint checkpoint;
    struct err err = {0};
    if (entry->seq <= chain->noted && entry->seq > 0) {
        return true; /* reading continues after an entry, and this note covers that entry */
    }
    shared->result.checkpoints++;
    chain->noted = entry->seq;
    if (!chain->is_signed) {
        damage(shared, chain, entry, "a checkpoint in a chain that has no key");
        return true;
    }
    enum status status = checkpoint_verify(entry->bytes, &chain->key, &checkpoint, &err);
    if (status != OK && status != E_INVALID && status != E_CORRUPT) {
        return stop(shared, status, err.text);
    }
    if (status != OK) {
        damage(shared, chain, entry, "%s", err.text);
    } else if (checkpoint.seq != chain->seq || !digest_equal(&checkpoint.hash, &chain->hash)) {
        damage(shared, chain, entry,
            "the checkpoint about entry %llu is not about the chain, at entry %llu",
            (unsigned long long)checkpoint.seq, (unsigned long long)chain->seq);
    } else {
        shared->result.last_checkpoint_seq = checkpoint.seq;
        return note_ties(shared, &checkpoint);
    }
    return true;
}

/* Chains move in memory when there are more of them. */
static bool is_outside(const struct shared *shared, const struct shared_chain *chain)
{
    return shared->outside_given &&
           memcmp(shared->outside_chain, chain->stored.chain_id, sizeof shared->outside_chain) == 0;
}

/* Finds the chain of the checkpoint kept elsewhere. */
static enum status read_outside(struct shared *shared, struct err *err)
{
    const struct shared_chain *chains = shared->chains.items;
    struct slice text = shared->options->checkpoint;
    enum status status = text.len == 0 ? OK : E_CORRUPT;
    for (size_t i = 0; status == E_CORRUPT && i < shared->chains.count; i++) {
        if (chains[i].is_signed) {
            status = checkpoint_verify(text, &chains[i].key, &shared->outside, err);
            memcpy(shared->outside_chain, chains[i].stored.chain_id, sizeof shared->outside_chain);
        }
    }
    shared->outside_given = text.len > 0 && status == OK;
    if (status == E_CORRUPT) {
        damage(shared, NULL, NULL, "the external checkpoint is of no chain of this store");
        status = OK;
    }
    return status == OK ? OK : err_set(err, status, "the external checkpoint cannot be read");
}

/* Without memory for it, the ties of that chain are not compared. */
static void keep_hash(const struct shared *shared, struct shared_chain *chain)
{
    size_t at = chain->seq % RECENT_HASHES;
    if (at >= chain->recent_cap) {
        size_t cap = at < 64 ? 64 : RECENT_HASHES;
        struct digest *recent = mem_resize(shared->mem, chain->recent, cap * sizeof *recent);
        if (recent == NULL) {
            mem_free(shared->mem, chain->recent);
            chain->recent_cap = 0;
            chain->recent = NULL;
            return;
        }
        memset(recent + chain->recent_cap, 0, (cap - chain->recent_cap) * sizeof *recent);
        chain->recent = recent;
        chain->recent_cap = cap;
    }
    ASSERT(at < chain->recent_cap);
    chain->recent[at] = chain->hash;
}

/* Checks that the chain is dense and linked (P10). Continues from the entry's own values. */
static void check_link(struct shared *shared, struct shared_chain *chain, const struct entry *entry)
{
    ASSERT(entry->kind == ENTRY_EVIDENCE);
    struct digest hash;
    entry_link(&chain->hash, entry, &hash);
    if (entry->seq != chain->seq + 1) {
        damage(shared, chain, entry, "entry %llu stands where %llu belongs",
            (unsigned long long)entry->seq, (unsigned long long)chain->seq + 1);
        redecide_gap(&shared->redecide, 0);
    } else if (!digest_equal(&hash, &entry->hash)) {
        damage(shared, chain, entry, "the chain is broken at entry %llu",
            (unsigned long long)entry->seq);
    }
    chain->seq = entry->seq;
    chain->hash = entry->hash;
    keep_hash(shared, chain);
    if (is_outside(shared, chain) && shared->outside.seq == chain->seq) {
        shared->result.outside_compared = true;
        if (!digest_equal(&shared->outside.hash, &chain->hash)) {
            damage(shared, chain, entry, "the external checkpoint has a different hash for it");
        }
    }
}

/* In an application's chain a decision that comes late has the time of the one before it, which may
 * have been removed: so the oldest evidence is always the beginning of a chain. */
static bool is_time_of(
    const struct shared_chain *chain, const struct entry *entry, const struct entry_view *view)
{
    ASSERT(view->decides);
    bool is_late = !chain->is_signed && (entry->time_ms == chain->time_ms || chain->time_ms == 0);
    return entry->time_ms == view->moment.now_ms ||
           (is_late && entry->time_ms > view->moment.now_ms);
}

/* Compares the row with the JSON, and checks that time and fences of one process only grow. This
 * does not hold for an application's chain: a transaction that commits late is chained late. */
static enum status check_row(struct shared *shared, struct shared_chain *chain,
    const struct entry *entry, const struct entry_view *view)
{
    char chain_id[37];
    bool grants = view->decides &&
                  (slice_is(view->decision, "first_seen") || slice_is(view->decision, "claimed"));
    if (view->seq != entry->seq ||
        !slice_is(view->chain_id, uuid_put(chain_id, chain->stored.chain_id)) ||
        !op_id_equal(&view->operation_id, &entry->operation_id) ||
        !slice_equal(view->request.key.tenant, entry->tenant) ||
        (view->decides && !is_time_of(chain, entry, view))) {
        damage(shared, chain, entry, "the entry is not the one that its row says");
    }
    if (chain->is_signed && entry->time_ms < chain->time_ms) {
        damage(shared, chain, entry, "time goes back by %lld ms",
            (long long)(chain->time_ms - entry->time_ms)); /* P8 */
    }
    chain->time_ms = entry->time_ms;
    if (!grants) {
        return OK;
    }
    if (chain->is_signed && view->fence <= chain->fence) {
        damage(shared, chain, entry, "fence %llu is granted after %llu",
            (unsigned long long)view->fence, (unsigned long long)chain->fence); /* P4 */
    }
    chain->fence = view->fence;
    uint64_t *fence = list_add(shared, &shared->fences, sizeof *fence);
    if (fence == NULL) {
        return err_set(&shared->err, E_NOMEM, "out of memory for the fences");
    }
    *fence = view->fence;
    return OK;
}

/* ---- deciding again ----------------------------------------------------------------------- */

static int u64_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static bool is_kept(const struct shared *shared, uint64_t prefix)
{
    return shared->prefixes.count > 0 && bsearch(&prefix, shared->prefixes.items,
                                             shared->prefixes.count, sizeof prefix, u64_compare);
}

/* Several decisions may depend on one version, and at most one of them changes it. The first
 * decision that finds an operation unknown changes it too; later ones do not. */
static int rank_of(const struct entry_view *view)
{
    static const char *const changing[] = {"first_seen", "sealed", "released", "unknown", "renewed",
        "resolved", "enqueued", "claimed", "done"};
    static const char *const repeating[] = {"H3", "H4", "H6", "N2", "N3", "N7", "X3", "K3", "K7"};
    bool again = false;
    for (size_t i = 0; i < COUNT(repeating); i++) {
        again = again || slice_is(view->rule, repeating[i]);
    }
    for (size_t i = 0; i < COUNT(changing) && !again; i++) {
        if (slice_is(view->decision, changing[i])) {
            return 2;
        }
    }
    return slice_is(view->decision, "held_unknown") ? 1 : 0;
}

static enum status keep(struct shared *shared, const struct entry *entry,
    const struct entry_view *view, uint64_t prefix)
{
    ASSERT(view->decides);
    ASSERT(shared->prefixes.count > 0);
    char *bytes = mem_alloc(shared->mem, entry->bytes.len);
    struct kept_back *kept = bytes == NULL ? NULL : list_add(shared, &shared->kept, sizeof *kept);
    if (kept == NULL) {
        mem_free(shared->mem, bytes);
        return err_set(&shared->err, E_NOMEM, "out of memory for the entries of applications");
    }
    memcpy(bytes, entry->bytes.data, entry->bytes.len);
    *kept = (struct kept_back){.prefix = prefix,
        .version = view->version,
        .rank = rank_of(view),
        .order = shared->kept.count,
        .entry = *entry};
    kept->entry.bytes = slice_of(bytes, entry->bytes.len);
    kept->entry.tenant = SLICE_EMPTY; /* not ours */
    return OK;
}

static int kept_compare(const void *left, const void *right)
{
    const struct kept_back *a = left;
    const struct kept_back *b = right;
    int order = (a->prefix > b->prefix) - (a->prefix < b->prefix);
    order = order != 0 ? order : (a->version > b->version) - (a->version < b->version);
    order = order != 0 ? order : a->rank - b->rank;
    return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static enum status decide_again(
    struct shared *shared, const struct entry *entry, const struct entry_view *view)
{
    /* Only the newest form of a record is stored: it is compared at the end. */
    struct redecide_stored stored = {.squeezed = true};
    struct err err = {0};
    enum status status = redecide_entry(&shared->redecide, view, &stored, &err);
    if (status == E_CORRUPT) {
        damage(shared, chain_find(shared, entry->chain_id), entry, "%s", err.text);
        return OK;
    }
    shared->err = status == OK ? shared->err : err;
    return status;
}

static enum status on_view(struct shared *shared, struct shared_chain *chain,
    const struct entry *entry, const struct entry_view *view)
{
    uint64_t prefix = op_id_prefix(&entry->operation_id);
    enum status status = check_row(shared, chain, entry, view);
    if (status != OK || !view->decides) {
        return status;
    }
    return is_kept(shared, prefix) ? keep(shared, entry, view, prefix)
                                   : decide_again(shared, entry, view);
}

/* Reads an entry and passes it to a function. */
static enum status with_view(struct shared *shared, const struct entry *entry,
    enum status (*act)(
        struct shared *, struct shared_chain *, const struct entry *, const struct entry_view *))
{
    struct entry_view view;
    struct err err = {0};
    struct shared_chain *chain = chain_find(shared, entry->chain_id);
    ASSERT(chain != NULL); /* on_entry reads the chains again before it continues */
    arena_clear(&shared->arena);
    enum status status = entry_view_read(entry, &shared->arena, &shared->scratch, &view, &err);
    if (status == E_CORRUPT) {
        damage(shared, chain, entry, "%s", err.text);
        redecide_gap(&shared->redecide, 0);
        return OK;
    }
    if (status != OK) {
        shared->err = err;
        return status;
    }
    return act(shared, chain, entry, &view);
}

static bool report(struct shared *shared)
{
    if (shared->options->progress == NULL) {
        return true;
    }
    struct verify_progress progress = {.bytes_done = shared->result.bytes,
        .bytes_total = shared->result.bytes,
        .entries = shared->result.entries};
    return shared->options->progress(shared->options->context, &progress);
}

static bool on_entry(void *context, const struct entry *entry)
{
    struct shared *shared = context;
    struct shared_chain *chain = chain_find(shared, entry->chain_id);
    if (chain == NULL) { /* it began since the chains were read */
        shared->is_new_chain = true;
        return false;
    }
    shared->result.bytes += entry->bytes.len;
    if (entry->kind == ENTRY_CHECKPOINT) {
        return on_checkpoint(shared, chain, entry);
    }
    shared->result.entries++;
    check_link(shared, chain, entry);
    shared->cursor.seq = entry->seq;
    memcpy(shared->cursor.chain_id, entry->chain_id, sizeof shared->cursor.chain_id);
    shared->status = with_view(shared, entry, on_view);
    if (shared->status == OK && shared->result.entries % 1024 == 0 && !report(shared)) {
        return stop(shared, E_UNAVAILABLE, "stopped before everything was checked");
    }
    return shared->status == OK;
}

static enum status read_entries_once(struct shared *shared, entry_visit visit, struct err *err)
{
    ASSERT(shared->status == OK);
    struct entry_range range = {.after = shared->cursor};
    shared->is_new_chain = false;
    enum status status = shared->store->ops->entries(shared->store, &range, visit, shared, err);
    return status == OK && shared->status != OK
               ? err_set(err, shared->status, "%s", shared->err.text)
               : status;
}

/* Reads the entries after the last one read. */
static enum status read_entries(struct shared *shared, entry_visit visit, struct err *err)
{
    enum status status = read_entries_once(shared, visit, err);
    while (status == OK && shared->is_new_chain) {
        size_t known = shared->chains.count;
        status = read_chains(shared, err);
        if (status == OK && shared->chains.count == known) {
            return err_set(err, E_CORRUPT, "an entry of a chain that the store does not have");
        }
        status = status == OK ? read_entries_once(shared, visit, err) : status;
    }
    return status;
}

/* The first pass: which operations applications decided on. */
static bool on_application(void *context, const struct entry *entry)
{
    struct shared *shared = context;
    const struct shared_chain *chain = chain_find(shared, entry->chain_id);
    if (chain == NULL || chain->is_signed || entry->kind != ENTRY_EVIDENCE) {
        return true;
    }
    uint64_t *prefix = list_add(shared, &shared->prefixes, sizeof *prefix);
    if (prefix == NULL) {
        return stop(shared, E_NOMEM, "out of memory for the operations of applications");
    }
    *prefix = op_id_prefix(&entry->operation_id);
    return true;
}

static enum status note_applications(struct shared *shared, struct err *err)
{
    const struct shared_chain *chains = shared->chains.items;
    bool any = false;
    for (size_t i = 0; i < shared->chains.count; i++) {
        any =
            any || (!chains[i].is_signed && chains[i].stored.seq + chains[i].stored.unchained > 0);
    }
    enum status status = any ? read_entries(shared, on_application, err) : OK;
    if (shared->prefixes.count > 0) {
        qsort(shared->prefixes.items, shared->prefixes.count, sizeof(uint64_t), u64_compare);
    }
    return status;
}

static enum status decide_view(struct shared *shared, struct shared_chain *chain,
    const struct entry *entry, const struct entry_view *view)
{
    (void)chain;
    return decide_again(shared, entry, view);
}

/* Frees the kept entries, which own their bytes. */
static void kept_clear(struct shared *shared)
{
    const struct kept_back *kept = shared->kept.items;
    for (size_t i = 0; i < shared->kept.count; i++) {
        union {
            const char *from;
            void *bytes;
        } owned = {.from = kept[i].entry.bytes.data};
        mem_free(shared->mem, owned.bytes);
    }
    shared->kept.count = 0;
}

/* Decides the kept entries again, in the order of the versions. */
static enum status decide_kept(struct shared *shared, struct err *err)
{
    struct kept_back *kept = shared->kept.items;
    enum status status = OK;
    if (shared->kept.count > 0) {
        qsort(kept, shared->kept.count, sizeof *kept, kept_compare);
    }
    for (size_t i = 0; i < shared->kept.count; i++) {
        if (status == OK) {
            status = with_view(shared, &kept[i].entry, decide_view);
        }
    }
    kept_clear(shared);
    return status == OK ? OK : err_set(err, status, "%s", shared->err.text);
}

/* ---- across chains ------------------------------------------------------------------------- */

/* P4: a fence is granted once, across all chains. */
static void check_fences(struct shared *shared)
{
    uint64_t *fences = shared->fences.items;
    if (shared->fences.count > 0) {
        qsort(fences, shared->fences.count, sizeof *fences, u64_compare);
    }
    for (size_t i = 1; i < shared->fences.count; i++) {
        if (fences[i] == fences[i - 1]) {
            damage(
                shared, NULL, NULL, "fence %llu was granted twice", (unsigned long long)fences[i]);
        }
    }
}

static void check_ends(struct shared *shared)
{
    const struct shared_chain *chains = shared->chains.items;
    for (size_t i = 0; i < shared->chains.count; i++) {
        const struct shared_chain *chain = &chains[i];
        shared->result.removed += chain->stored.removed_seq;
        shared->result.unchained += chain->stored.unchained;
        if (is_outside(shared, chain) && shared->outside.seq > chain->seq) {
            damage(shared, chain, NULL, "older than the checkpoint, which covers entry %llu",
                (unsigned long long)shared->outside.seq);
        }
        if (!shared->settled) {
            continue;
        }
        if (chain->seq < chain->stored.seq) {
            damage(shared, chain, NULL, "it ends with entry %llu, and entry %llu was committed",
                (unsigned long long)chain->seq, (unsigned long long)chain->stored.seq);
        } else if (chain->seq == chain->stored.seq && chain->seq > 0 &&
                   !digest_equal(&chain->hash, &chain->stored.hash)) {
            damage(shared, chain, NULL, "its last entry is not the one that was committed");
        }
    }
}

/* Compares the ties that were ahead of their chain. */
static void check_ties(struct shared *shared)
{
    const struct tied *ties = shared->ties.items;
    for (size_t i = 0; i < shared->ties.count; i++) {
        check_tie(shared, &ties[i]);
    }
}

static enum status on_record(struct shared *shared, const struct record *record)
{
    struct err err = {0};
    bool is_newer = false;
    shared->result.records++;
    if (record->kind == RECORD_SOURCE) {
        return OK; /* no entry of its own */
    }
    enum status status = redecide_record_check(&shared->redecide, record, &is_newer, &err);
    if (status == E_CORRUPT) {
        damage(shared, NULL, &(struct entry){.operation_id = record->operation_id}, "%s", err.text);
    } else if (status == E_STALE && is_newer) {
        struct newer *newer = list_add(shared, &shared->newer, sizeof *newer);
        if (newer == NULL) {
            return err_set(&shared->err, E_NOMEM, "out of memory for the records");
        }
        *newer = (struct newer){.key_hash = record->key.hash,
            .operation_id = record->operation_id,
            .version = record->version};
    }
    return OK;
}

/* P12: a record made by the entries must exist until its window is over. A record that others
 * forget during the check is past its window by the store's time, which is read last. */
static void check_unseen(struct shared *shared, int64_t now_ms)
{
    size_t at = 0;
    const struct op_id *id = redecide_unseen(&shared->redecide, now_ms, &at);
    for (; id != NULL; id = redecide_unseen(&shared->redecide, now_ms, &at)) {
        damage(shared, NULL, &(struct entry){.operation_id = *id},
            "the record that the entries lead to is missing");
    }
}

/* Every record, page by page. */
static enum status read_records(struct shared *shared, struct err *err)
{
    struct scan scan = {.kinds = STORE_KINDS_ALL, .limit = RECORDS_PAGE};
    struct arena arena;
    const struct record *records[RECORDS_PAGE];
    size_t count = RECORDS_PAGE;
    enum status status = OK;
    arena_init(&arena, shared->mem, RECORDS_ARENA_BYTES_MAX);
    while (status == OK && count == RECORDS_PAGE) {
        arena_clear(&arena);
        status = shared->store->ops->scan(shared->store, &scan, &arena, records, &count, err);
        ASSERT(status != OK || count <= RECORDS_PAGE);
        for (size_t i = 0; status == OK && i < count; i++) {
            scan.after = records[i]->key.hash;
            status = on_record(shared, records[i]);
            status = status == OK ? OK : err_set(err, status, "%s", shared->err.text);
        }
    }
    arena_release(&arena);
    struct store_batch batch = {.arena = &shared->arena};
    arena_clear(&shared->arena);
    status = status == OK ? shared->store->ops->read(shared->store, &batch, err) : status;
    if (status == OK) {
        check_unseen(shared, batch.now_ms);
    }
    return status;
}

/* Records that were newer than the entries before them: later entries must lead to them. Each
 * unchained decision of an application explains one. */
static void check_newer(struct shared *shared)
{
    const struct newer *newer = shared->newer.items;
    uint64_t unexplained = 0;
    for (size_t i = 0; i < shared->newer.count; i++) {
        unexplained +=
            redecide_version_of(&shared->redecide, &newer[i].key_hash) < newer[i].version;
    }
    /* If readers see less than was committed, only a settled moment shows what is missing. */
    if (unexplained <= shared->result.unchained || (shared->keeps_ends && !shared->settled)) {
        return;
    }
    for (size_t i = 0; i < shared->newer.count; i++) {
        uint64_t version = redecide_version_of(&shared->redecide, &newer[i].key_hash);
        if (version < newer[i].version) {
            damage(shared, NULL, &(struct entry){.operation_id = newer[i].operation_id},
                "the record has version %llu, and the entries lead to version %llu",
                (unsigned long long)newer[i].version, (unsigned long long)version);
        }
    }
}

/* Waits until the ends of the chains are visible; busy writers may prevent that. */
static enum status settle(struct shared *shared, struct err *err)
{
    enum status status = OK;
    for (int i = 0; i < SETTLE_TRIES && status == OK; i++) {
        status = read_chains(shared, err);
        if (shared->settled || !shared->keeps_ends) {
            break;
        }
        clock_sleep_ms(SETTLE_PAUSE_MS);
    }
    return status == OK ? read_entries(shared, on_entry, err) : status;
}

/* ---- all of it ---------------------------------------------------------------------------- */

static enum status check_all(struct shared *shared, struct err *err)
{
    enum status status = read_chains(shared, err);
    status = status == OK ? read_outside(shared, err) : status;
    status = status == OK ? note_applications(shared, err) : status;
    status = status == OK ? read_entries(shared, on_entry, err) : status;
    status = status == OK ? decide_kept(shared, err) : status;
    status = status == OK ? read_records(shared, err) : status;
    status = status == OK ? settle(shared, err) : status;
    status = status == OK ? decide_kept(shared, err) : status;
    if (status != OK) {
        return status;
    }
    ASSERT(shared->kept.count == 0); /* every entry was decided again */
    check_ties(shared);
    check_ends(shared);
    check_fences(shared);
    check_newer(shared);
    shared->result.shared = true;
    shared->result.unsettled = shared->keeps_ends && !shared->settled;
    shared->result.has_ends = shared->keeps_ends;
    shared->result.chains = shared->chains.count;
    shared->result.redecided = shared->redecide.redecided;
    shared->result.not_redecidable = shared->redecide.not_redecidable;
    shared->result.last_seq = shared->result.entries;
    (void)report(shared);
    return OK;
}

static void shared_release(struct shared *shared)
{
    struct shared_chain *chains = shared->chains.items;
    kept_clear(shared); /* if it stopped before they were decided again */
    for (size_t i = 0; i < shared->chains.count; i++) {
        mem_free(shared->mem, chains[i].recent);
    }
    struct list *lists[] = {&shared->chains, &shared->prefixes, &shared->kept, &shared->fences,
        &shared->newer, &shared->ties};
    for (size_t i = 0; i < COUNT(lists); i++) {
        mem_free(shared->mem, lists[i]->items);
    }
    redecide_release(&shared->redecide);
    buf_release(&shared->scratch);
    arena_release(&shared->arena);
}

enum status verify_shared_run(
    const struct verify_options *options, struct verify_result *ret_result, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct store_options how = {
        .mem = mem, .io = options->io, .read_only = true, .unfinished = options->unfinished};
    struct shared *shared = mem_zalloc(mem, 1, sizeof *shared);
    if (shared == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    shared->options = options;
    shared->mem = mem;
    arena_init(&shared->arena, mem, ENTRY_ARENA_BYTES_MAX);
    buf_init(&shared->scratch, mem, ENTRY_CANONICAL_BYTES_MAX);
    redecide_init(&shared->redecide, mem);
    shared->redecide.shared = true;
    enum status status = store_open(options->url, &how, &shared->store, err);
    if (status == OK) {
        ASSERT(shared->store->ops->chains != NULL);
        status = check_all(shared, err);
        enum status closed = shared->store->ops->close(shared->store, status == OK ? err : NULL);
        status = status == OK ? closed : status;
    }
    if (status == E_CORRUPT) { /* that is a finding, not a failure to check */
        damage(shared, NULL, NULL, "%s", err->text);
        shared->result.shared = true;
        status = OK;
    }
    if (status == OK) {
        *ret_result = shared->result;
    }
    shared_release(shared);
    mem_free(mem, shared);
    return status;
}

enum status verify_inherited_run(
    const struct verify_options *options, struct verify_result *result, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct verify_result *all = mem_zalloc(mem, 1, sizeof *all);
    struct verify_options how = *options;
    if (all == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    how.checkpoint = SLICE_EMPTY; /* it was compared with the journal's own chain */
    enum status status = verify_shared_run(&how, all, err);
    if (status == OK) {
        result->inherits = true;
        result->chains = all->chains;
        result->entries = all->entries;
        result->checkpoints = all->checkpoints;
        result->removed = all->removed;
        result->redecided = all->redecided;
        result->not_redecidable = all->not_redecidable;
    }
    for (size_t i = 0; status == OK && i < all->damage_count && i < VERIFY_DAMAGES_MAX; i++) {
        if (result->damage_count < VERIFY_DAMAGES_MAX) {
            result->damages[result->damage_count++] = all->damages[i];
        }
    }
    mem_free(mem, all);
    return status;
}
