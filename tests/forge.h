/*
 * forge: take a journal's segment apart into frames, change them, and put it together again with
 * every checksum right, as an attacker who knows the format can.
 */
#ifndef ONCE_TESTS_FORGE_H
#define ONCE_TESTS_FORGE_H

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "entry_text.h"
#include "evidence/checkpoint.h"
#include "files.h"
#include "store/journal/format.h"

enum { FORGE_BATCHES_MAX = 4096, FORGE_FRAMES_MAX = 32768 };

struct forge_frame {
    enum frame_kind kind;
    size_t batch;         /* index of its batch */
    struct slice payload; /* in the arena */
    uint64_t place;       /* where it was read */
    uint64_t place_now;   /* where it was written */
};

struct forge {
    struct arena arena;
    struct buf file; /* as read */
    char path[256];
    struct segment_header header;
    uint32_t seed;
    uint64_t end; /* of the last batch, as read or written */
    struct batch_header batches[FORGE_BATCHES_MAX];
    size_t batch_count;
    struct forge_frame frames[FORGE_FRAMES_MAX];
    size_t count;
};

static inline void forge_load(struct forge *forge, const char *directory, uint64_t number)
{
    memset(forge, 0, sizeof *forge);
    arena_init(&forge->arena, &mem_libc, 256 << 20);
    buf_init(&forge->file, &mem_libc, FILE_BYTES_MAX + 1);
    (void)snprintf(forge->path, sizeof forge->path, "%s/segment-%016llx", directory,
        (unsigned long long)number);
    file_read_path(forge->path, &forge->file);
    const unsigned char *bytes = (const unsigned char *)forge->file.data;
    ASSERT(segment_header_decode(bytes, &forge->header) == NULL);
    forge->seed = segment_seed(forge->header.chain_id, forge->header.number);
    uint64_t at = JOURNAL_BLOCK_BYTES;
    while (at + BATCH_HEADER_BYTES <= forge->file.len) {
        struct batch_header batch;
        if (batch_header_decode(bytes + at, forge->seed, at, &batch) != NULL) {
            break;
        }
        ASSERT(forge->batch_count < FORGE_BATCHES_MAX);
        for (uint64_t in = BATCH_HEADER_BYTES; in < batch.content;) {
            struct frame frame;
            ASSERT(frame_decode(slice_of(bytes + at + in, batch.content - in), forge->seed, at + in,
                       &frame) == NULL);
            ASSERT(forge->count < FORGE_FRAMES_MAX);
            struct forge_frame *copy = &forge->frames[forge->count++];
            *copy = (struct forge_frame){.kind = frame.kind,
                .batch = forge->batch_count,
                .place = place_make(number, at + in)};
            ASSERT(arena_copy(&forge->arena, frame.payload, &copy->payload) == OK);
            in += FRAME_HEADER_BYTES + frame.payload.len;
        }
        forge->batches[forge->batch_count++] = batch;
        at += batch.length;
    }
    forge->end = at;
}

static inline void forge_release(struct forge *forge)
{
    buf_release(&forge->file);
    arena_release(&forge->arena);
}

static inline uint64_t forge_moved(const struct forge *forge, uint64_t place)
{
    for (size_t i = 0; i < forge->count; i++) {
        if (forge->frames[i].place == place && forge->frames[i].place_now != 0) {
            return forge->frames[i].place_now;
        }
    }
    return place;
}

/* A record names the places of its bodies, which have moved. */
static inline struct slice forge_record(struct forge *forge, struct slice payload)
{
    struct record record;
    struct buf out;
    struct slice again;
    if (record_decode(payload, &record, NULL) != OK) {
        return payload;
    }
    record.request.place = forge_moved(forge, record.request.place);
    record.outcome.body.place = forge_moved(forge, record.outcome.body.place);
    buf_init(&out, &mem_libc, 1 << 20);
    record_encode(&record, &out);
    ASSERT(arena_copy(&forge->arena, buf_view(&out), &again) == OK);
    buf_release(&out);
    return again;
}

static inline void forge_batch(struct forge *forge, size_t which, struct buf *file)
{
    struct batch_header header = forge->batches[which];
    uint64_t start = file->len;
    header.frames = 0;
    (void)buf_extend(file, BATCH_HEADER_BYTES);
    for (size_t i = 0; i < forge->count; i++) {
        struct forge_frame *frame = &forge->frames[i];
        if (frame->batch != which) {
            continue;
        }
        uint64_t offset = file->len;
        frame->place_now = place_make(forge->header.number, offset);
        if (frame->kind == FRAME_RECORD || frame->kind == FRAME_MOVED) {
            frame->payload = forge_record(forge, frame->payload);
        }
        char *bytes = buf_extend(file, FRAME_HEADER_BYTES);
        buf_slice(file, frame->payload);
        bytes = file->data + offset;
        frame_header_encode(bytes, frame->kind, (uint32_t)frame->payload.len, forge->seed, offset);
        header.frames++;
    }
    header.content = (uint32_t)(file->len - start);
    header.length = (uint32_t)block_up(header.content);
    memset(buf_extend(file, header.length - header.content), 0, header.length - header.content);
    header.zero_sectors = batch_zero_sectors(file->data + start, header.content);
    batch_header_encode(&header, forge->seed, start, (unsigned char *)file->data + start);
}

static inline void forge_write(const char *path, struct slice bytes)
{
    FILE *file = fopen(path, "wb");
    ASSERT(file != NULL && fwrite(bytes.data, 1, bytes.len, file) == bytes.len);
    ASSERT(fclose(file) == 0);
}

/* Write it, as large as it was when it was read; a squeezed one has no zeros at its end. */
static inline void forge_save(struct forge *forge)
{
    struct buf file;
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    unsigned char block[JOURNAL_BLOCK_BYTES];
    for (size_t i = 0; i < forge->count; i++) {
        forge->frames[i].place_now = 0;
    }
    segment_header_encode(&forge->header, block);
    buf_append(&file, block, sizeof block);
    for (size_t i = 0; i < forge->batch_count; i++) {
        forge_batch(forge, i, &file);
    }
    forge->end = file.len;
    if (!forge->header.squeezed && file.len < forge->file.len) {
        size_t rest = forge->file.len - file.len;
        memset(buf_extend(&file, rest), 0, rest);
    }
    ASSERT(buf_status(&file) == OK);
    forge_write(forge->path, buf_view(&file));
    buf_release(&file);
    /* What was read is forgotten, so that saving again is right. */
    for (size_t i = 0; i < forge->count; i++) {
        forge->frames[i].place = forge->frames[i].place_now;
    }
}

/* The index of the nth frame of a kind; entries are evidence only. */
static inline size_t forge_find(const struct forge *forge, enum frame_kind kind, size_t nth)
{
    for (size_t i = 0; i < forge->count; i++) {
        const struct forge_frame *frame = &forge->frames[i];
        bool evidence = kind != FRAME_ENTRY || frame->payload.data[0] == ENTRY_EVIDENCE;
        if (frame->kind == kind && evidence && nth-- == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static inline void forge_drop(struct forge *forge, size_t at)
{
    ASSERT(at < forge->count);
    forge->count--;
    memmove(
        forge->frames + at, forge->frames + at + 1, (forge->count - at) * sizeof *forge->frames);
}

/* A second one after it. */
static inline void forge_double(struct forge *forge, size_t at)
{
    ASSERT(at < forge->count && forge->count < FORGE_FRAMES_MAX);
    memmove(
        forge->frames + at + 1, forge->frames + at, (forge->count - at) * sizeof *forge->frames);
    forge->count++;
}

/* Two frames change places, batches and all. */
static inline void forge_swap(struct forge *forge, size_t a, size_t b)
{
    struct forge_frame copy = forge->frames[a];
    size_t batch_a = copy.batch;
    size_t batch_b = forge->frames[b].batch;
    forge->frames[a] = forge->frames[b];
    forge->frames[b] = copy;
    forge->frames[a].batch = batch_a;
    forge->frames[b].batch = batch_b;
}

static inline void forge_entry(struct forge *forge, size_t at, const struct entry *entry)
{
    struct buf out;
    unsigned char lead[ENTRY_LEAD_BYTES_MAX];
    buf_init(&out, &mem_libc, 1 << 20);
    buf_append(&out, lead, entry_lead_encode(entry, lead));
    buf_slice(&out, entry->bytes);
    ASSERT(arena_copy(&forge->arena, buf_view(&out), &forge->frames[at].payload) == OK);
    buf_release(&out);
}

/* Replace a text in the first entry that has it. False: none has. */
static inline bool forge_replace(struct forge *forge, const char *from, const char *to)
{
    for (size_t i = 0; i < forge->count; i++) {
        struct entry entry;
        if (forge->frames[i].kind != FRAME_ENTRY ||
            entry_decode(forge->frames[i].payload, &entry) != NULL) {
            continue;
        }
        struct buf text;
        memcpy(entry.chain_id, forge->header.chain_id, sizeof entry.chain_id);
        buf_init(&text, &mem_libc, 1 << 20);
        if (entry.kind == ENTRY_EVIDENCE && entry_replace(&entry, from, to, &text)) {
            entry.bytes = buf_view(&text);
            forge_entry(forge, i, &entry);
            buf_release(&text);
            return true;
        }
        buf_release(&text);
    }
    return false;
}

/* Compute the chain anew, and sign the notes anew when there is a key. */
static inline void forge_rechain(struct forge *forge, const struct store_identity *identity)
{
    struct chain chain;
    struct store_head head = {.seq = forge->header.mark.seq, .hash = forge->header.mark.hash};
    struct store_identity nobody = {0};
    chain_init(&chain, &head, identity == NULL ? &nobody : identity);
    for (size_t i = 0; i < forge->count; i++) {
        struct entry entry;
        if (forge->frames[i].kind != FRAME_ENTRY ||
            entry_decode(forge->frames[i].payload, &entry) != NULL) {
            continue;
        }
        if (entry.kind == ENTRY_EVIDENCE) {
            memcpy(entry.chain_id, forge->header.chain_id, sizeof entry.chain_id);
            entry_link(&chain.hash, &entry, &entry.hash);
            chain.hash = entry.hash;
            chain.seq = entry.seq;
            forge_entry(forge, i, &entry);
        } else if (identity != NULL) {
            struct buf note;
            struct entry signed_entry;
            buf_init(&note, &mem_libc, 4096);
            ASSERT(checkpoint_compose(
                       &chain, identity, entry.time_ms, &note, &signed_entry, NULL) == OK);
            forge_entry(forge, i, &signed_entry);
            buf_release(&note);
        }
    }
}

#endif
