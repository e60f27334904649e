#include "cli/capture.h"

#include "base/check.h"
#include "base/limits.h"
#include "canon/json.h"
#include "cli/cli.h"

enum { HEAD_BYTES = 5 };

void capture_init(struct capture *capture, uint64_t bytes_max)
{
    *capture = (struct capture){.bytes_max = bytes_max, .last_stream = -1};
    buf_init(&capture->pieces, &mem_libc, LIMIT_OUTCOME_BYTES_MAX);
}

void capture_release(struct capture *capture)
{
    buf_release(&capture->pieces);
}

static uint32_t le32_read(const char *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void le32_patch(char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (char)(unsigned char)(value >> (8 * i));
    }
}

/* How many of size bytes still fit. Once a byte was dropped nothing more is kept, so that what is
 * kept is a beginning and not a sieve. */
static size_t room(const struct capture *capture, size_t size)
{
    uint64_t kept = capture->kept[0] + capture->kept[1];
    size_t taken = capture->pieces.len + HEAD_BYTES;
    if (capture->dropped[0] + capture->dropped[1] > 0 || kept >= capture->bytes_max ||
        taken >= capture->pieces.max) {
        return 0;
    }
    uint64_t left = capture->bytes_max - kept;
    left = left < capture->pieces.max - taken ? left : capture->pieces.max - taken;
    return left < size ? (size_t)left : size;
}

static void keep(struct capture *capture, int stream, struct slice bytes)
{
    if (capture->last_stream != stream) {
        capture->last_head = capture->pieces.len;
        capture->last_stream = stream;
        buf_char(&capture->pieces, stream == CAPTURE_STDOUT ? '1' : '2');
        buf_le32(&capture->pieces, 0);
    }
    buf_slice(&capture->pieces, bytes);
    if (buf_status(&capture->pieces) == OK) {
        char *length = capture->pieces.data + capture->last_head + 1;
        le32_patch(length, le32_read(length) + (uint32_t)bytes.len);
        capture->kept[stream] += bytes.len;
        return;
    }
    /* Out of memory: an honest "nothing was kept" instead of half a piece. */
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        capture->dropped[i] += capture->kept[i];
        capture->kept[i] = 0;
    }
    capture->dropped[stream] += bytes.len;
    buf_release(&capture->pieces);
    buf_init(&capture->pieces, &mem_libc, LIMIT_OUTCOME_BYTES_MAX);
    capture->last_stream = -1;
}

void capture_add(struct capture *capture, int stream, struct slice bytes)
{
    ASSERT(stream == CAPTURE_STDOUT || stream == CAPTURE_STDERR);
    size_t fits = room(capture, bytes.len);
    if (fits > 0) {
        keep(capture, stream, slice_of(bytes.data, fits));
    }
    capture->dropped[stream] += bytes.len - fits;
}

void capture_meta(const struct capture *capture, struct buf *out)
{
    buf_printf(out,
        "{\"format\":\"" CAPTURE_FORMAT "\",\"stderr_bytes\":%llu,\"stderr_dropped\":%llu,"
        "\"stdout_bytes\":%llu,\"stdout_dropped\":%llu}",
        (unsigned long long)capture->kept[CAPTURE_STDERR],
        (unsigned long long)capture->dropped[CAPTURE_STDERR],
        (unsigned long long)capture->kept[CAPTURE_STDOUT],
        (unsigned long long)capture->dropped[CAPTURE_STDOUT]);
}

static bool meta_count(const struct json_value *meta, struct slice name, uint64_t *ret)
{
    int64_t value = 0;
    if (!json_int(json_find(meta, name), &value) || value < 0) {
        return false;
    }
    *ret = (uint64_t)value;
    return true;
}

/* The meta is ours; its counts are all there. */
static bool meta_read(struct slice text, struct arena *arena, struct recording *recording)
{
    const struct json_value *meta = NULL;
    if (text.len == 0 || json_read(text, arena, &meta, NULL) != OK ||
        !slice_is(cli_member(meta, SLICE_LIT("format")), CAPTURE_FORMAT)) {
        return false;
    }
    return meta_count(meta, SLICE_LIT("stdout_bytes"), &recording->kept[CAPTURE_STDOUT]) &&
           meta_count(meta, SLICE_LIT("stderr_bytes"), &recording->kept[CAPTURE_STDERR]) &&
           meta_count(meta, SLICE_LIT("stdout_dropped"), &recording->dropped[CAPTURE_STDOUT]) &&
           meta_count(meta, SLICE_LIT("stderr_dropped"), &recording->dropped[CAPTURE_STDERR]);
}

/* Pieces follow each other to the end and add up to what the meta says. */
static bool pieces_add_up(const struct recording *recording)
{
    uint64_t seen[CAPTURE_STREAMS] = {0};
    struct slice left = recording->body;
    while (left.len >= HEAD_BYTES && (left.data[0] == '1' || left.data[0] == '2')) {
        uint32_t size = le32_read(left.data + 1);
        if (size > left.len - HEAD_BYTES) {
            return false;
        }
        seen[left.data[0] - '1'] += size;
        left = slice_of(left.data + HEAD_BYTES + size, left.len - HEAD_BYTES - size);
    }
    return left.len == 0 && seen[0] == recording->kept[0] && seen[1] == recording->kept[1];
}

enum status recording_read(const struct once_operation *operation, struct arena *arena,
    struct recording *ret_recording, struct err *err)
{
    struct recording recording = {0};
    struct slice meta = slice_of(operation->outcome.meta.data, operation->outcome.meta.size);
    struct slice body = slice_of(operation->outcome.body.data, operation->outcome.body.size);
    recording.framed = meta_read(meta, arena, &recording);
    recording.gone = body.len > 0 && !operation->outcome_retained;
    if (recording.gone) {
        *ret_recording = recording;
        return OK;
    }
    if (arena_copy(arena, body, &recording.body) != OK) {
        return err_set(err, E_NOMEM, "out of memory for %zu bytes of output", body.len);
    }
    if (!recording.framed) {
        recording.kept[CAPTURE_STDOUT] = body.len;
    } else if (!pieces_add_up(&recording)) {
        return err_set(
            err, E_CORRUPT, "the recorded output of %s does not add up", operation->operation_id);
    }
    *ret_recording = recording;
    return OK;
}

struct recording recording_of(const struct capture *capture)
{
    struct recording recording = {.framed = true, .body = buf_view(&capture->pieces)};
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        recording.kept[i] = capture->kept[i];
        recording.dropped[i] = capture->dropped[i];
    }
    return recording;
}

void recording_each(const struct recording *recording, recording_visit visit, void *context)
{
    struct slice left = recording->body;
    if (!recording->framed) {
        (void)visit(context, CAPTURE_STDOUT, left);
        return;
    }
    while (left.len > 0) {
        size_t size = le32_read(left.data + 1);
        ASSERT(HEAD_BYTES + size <= left.len); /* recording_read saw to it */
        if (!visit(context, left.data[0] - '1', slice_of(left.data + HEAD_BYTES, size))) {
            return;
        }
        left = slice_of(left.data + HEAD_BYTES + size, left.len - HEAD_BYTES - size);
    }
}

struct one_stream {
    int stream;
    struct buf *out;
};

static bool add_if_stream(void *context, int stream, struct slice bytes)
{
    struct one_stream *one = context;
    if (stream == one->stream) {
        buf_slice(one->out, bytes);
    }
    return true;
}

void recording_stream(const struct recording *recording, int stream, struct buf *out)
{
    recording_each(recording, add_if_stream, &(struct one_stream){stream, out});
}
