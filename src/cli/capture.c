#include "cli/capture.h"

#include "base/check.h"
#include "base/limits.h"
#include "canon/json.h"
#include "cli/cli.h"

enum { HEAD_BYTES = 5 };
#define TREE_BYTES_MAX ((size_t)64 * LIMIT_OUTCOME_BYTES_MAX) /* more than its text can need */

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

/* How many of size bytes still fit. After the first dropped byte nothing more is kept, so that the
 * kept part is a prefix without gaps. */
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
    /* Out of memory: report that nothing was kept, instead of half a piece. */
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

static bool put_piece(void *context, int stream, struct slice bytes)
{
    struct jsonw *json = context;
    jsonw_open(json, NULL, '{');
    jsonw_bytes(json, stream == CAPTURE_STDOUT ? "stdout" : "stderr", bytes);
    jsonw_close(json, '}');
    return true;
}

void capture_json(const struct capture *capture, int exit_code, bool keeps_output, struct buf *out)
{
    struct jsonw json = {.out = out};
    struct recording recording = recording_of(capture);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "format", CAPTURE_FORMAT_JSON);
    jsonw_i64(&json, "exit_code", exit_code);
    jsonw_open(&json, "output", '[');
    if (keeps_output) {
        recording_each(&recording, put_piece, &json);
    }
    jsonw_close(&json, ']');
    jsonw_u64(&json, "stdout_dropped",
        capture->dropped[CAPTURE_STDOUT] + (keeps_output ? 0 : capture->kept[CAPTURE_STDOUT]));
    jsonw_u64(&json, "stderr_dropped",
        capture->dropped[CAPTURE_STDERR] + (keeps_output ? 0 : capture->kept[CAPTURE_STDERR]));
    jsonw_close(&json, '}');
}

void capture_meta(const struct capture *capture, struct buf *out)
{
    buf_printf(out,
        "{\"format\":\"" CAPTURE_FORMAT_FRAMED "\",\"stderr_bytes\":%llu,\"stderr_dropped\":%llu,"
        "\"stdout_bytes\":%llu,\"stdout_dropped\":%llu}",
        (unsigned long long)capture->kept[CAPTURE_STDERR],
        (unsigned long long)capture->dropped[CAPTURE_STDERR],
        (unsigned long long)capture->kept[CAPTURE_STDOUT],
        (unsigned long long)capture->dropped[CAPTURE_STDOUT]);
}

/* ---- reading ----------------------------------------------------------------------------- */

static enum status no_memory(struct err *err)
{
    return err_set(err, E_NOMEM, "out of memory for the recorded output");
}

static enum status broken(const struct operation *operation, struct err *err)
{
    return err_set(
        err, E_CORRUPT, "the recorded output of %.*s does not add up", SLICE_ARGS(operation->id));
}

static bool count_of(const struct json_value *object, const char *name, uint64_t *ret)
{
    int64_t value = 0;
    if (!json_int(json_find(object, slice_str(name)), &value) || value < 0) {
        return false;
    }
    *ret = (uint64_t)value;
    return true;
}

/* Whether the pieces are complete and add up to the stated counts. */
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

/* Convert one piece of JSON to the framed form. */
static bool take_piece(struct capture *capture, const struct json_value *piece, struct arena *arena)
{
    struct slice bytes = SLICE_EMPTY;
    if (operation_bytes(piece, "stdout", arena, &bytes, NULL) == OK) {
        capture_add(capture, CAPTURE_STDOUT, bytes);
        return true;
    }
    if (operation_bytes(piece, "stderr", arena, &bytes, NULL) == OK) {
        capture_add(capture, CAPTURE_STDERR, bytes);
        return true;
    }
    return false;
}

static enum status read_json_form(const struct operation *operation,
    const struct json_value *outcome, struct arena *tree, struct arena *arena,
    struct recording *recording, struct err *err)
{
    struct capture capture;
    int64_t exit_code = 0;
    uint64_t dropped[CAPTURE_STREAMS] = {0};
    const struct json_value *output = json_find(outcome, SLICE_LIT("output"));
    if (!json_int(json_find(outcome, SLICE_LIT("exit_code")), &exit_code) || exit_code < 0 ||
        exit_code > UINT8_MAX || !json_is(output, JSON_ARRAY) ||
        !count_of(outcome, "stdout_dropped", &dropped[CAPTURE_STDOUT]) ||
        !count_of(outcome, "stderr_dropped", &dropped[CAPTURE_STDERR])) {
        return broken(operation, err);
    }
    bool is_whole = true;
    capture_init(&capture, LIMIT_OUTCOME_BYTES_MAX);
    for (uint32_t i = 0; is_whole && i < output->count; i++) {
        is_whole = take_piece(&capture, &output->items[i], tree);
    }
    *recording = recording_of(&capture);
    recording->has_code = true;
    recording->exit_code = (int)exit_code;
    recording->dropped[CAPTURE_STDOUT] += dropped[CAPTURE_STDOUT];
    recording->dropped[CAPTURE_STDERR] += dropped[CAPTURE_STDERR];
    enum status status = !is_whole ? broken(operation, err)
                         : arena_copy(arena, buf_view(&capture.pieces), &recording->body) == OK
                             ? OK
                             : no_memory(err);
    capture_release(&capture);
    return status;
}

/* Whether the meta belongs to the framed form and has all its counts. */
static bool read_meta(struct slice text, struct arena *arena, struct recording *recording)
{
    const struct json_value *meta = NULL;
    if (text.len == 0 || json_read(text, arena, &meta, NULL) != OK ||
        !slice_is(cli_member(meta, SLICE_LIT("format")), CAPTURE_FORMAT_FRAMED)) {
        return false;
    }
    return count_of(meta, "stdout_bytes", &recording->kept[CAPTURE_STDOUT]) &&
           count_of(meta, "stderr_bytes", &recording->kept[CAPTURE_STDERR]) &&
           count_of(meta, "stdout_dropped", &recording->dropped[CAPTURE_STDOUT]) &&
           count_of(meta, "stderr_dropped", &recording->dropped[CAPTURE_STDERR]);
}

static enum status read_parts(const struct operation *operation, struct arena *arena,
    struct recording *recording, struct err *err)
{
    const struct operation_outcome *outcome = &operation->outcome;
    recording->is_run = read_meta(outcome->meta, arena, recording);
    recording->gone = !outcome->is_retained;
    recording->has_code = true;
    recording->exit_code = outcome->code;
    if (recording->gone) {
        return OK;
    }
    if (arena_copy(arena, outcome->body, &recording->body) != OK) {
        return no_memory(err);
    }
    if (!recording->is_run) {
        recording->kept[CAPTURE_STDOUT] = outcome->body.len;
    } else if (!pieces_add_up(recording)) {
        return broken(operation, err);
    }
    return OK;
}

/* For an executed operation the exit code is always 0; for a failed one it was in the outcome. */
static void read_absent(const struct operation *operation, struct recording *recording)
{
    recording->is_run = true;
    recording->gone = !operation->outcome.is_retained;
    recording->has_code = operation->status == ONCE_EXECUTED || !recording->gone;
    recording->exit_code = operation->status == ONCE_EXECUTED ? 0 : 1;
}

/* The JSON form, or any other JSON, which the caller gets as it is. */
static enum status read_json(const struct operation *operation, struct arena *arena,
    struct recording *recording, struct err *err)
{
    const struct operation_outcome *outcome = &operation->outcome;
    const struct json_value *root = NULL;
    struct arena tree;
    arena_init(&tree, &mem_libc, TREE_BYTES_MAX);
    enum status status = json_read(outcome->body, &tree, &root, err);
    if (status == OK && slice_is(cli_member(root, SLICE_LIT("format")), CAPTURE_FORMAT_JSON)) {
        status = read_json_form(operation, root, &tree, arena, recording, err);
    } else if (status == OK || status == E_INVALID) {
        recording->has_code = true;
        recording->exit_code = operation->status == ONCE_EXECUTED ? 0 : 1;
        recording->kept[CAPTURE_STDOUT] = outcome->body.len;
        status = arena_copy(arena, outcome->body, &recording->body) == OK ? OK : no_memory(err);
    }
    arena_release(&tree);
    return status;
}

enum status recording_read(const struct operation *operation, struct arena *arena,
    struct recording *ret_recording, struct err *err)
{
    *ret_recording = (struct recording){0};
    switch (operation->outcome.form) {
    case OUTCOME_ABSENT: read_absent(operation, ret_recording); return OK;
    case OUTCOME_PARTS: return read_parts(operation, arena, ret_recording, err);
    case OUTCOME_JSON: break;
    }
    return read_json(operation, arena, ret_recording, err);
}

struct recording recording_of(const struct capture *capture)
{
    struct recording recording = {.is_run = true, .body = buf_view(&capture->pieces)};
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        recording.kept[i] = capture->kept[i];
        recording.dropped[i] = capture->dropped[i];
    }
    return recording;
}

void recording_each(const struct recording *recording, recording_visit visit, void *context)
{
    struct slice left = recording->body;
    if (!recording->is_run) {
        (void)visit(context, CAPTURE_STDOUT, left);
        return;
    }
    while (left.len > 0) {
        size_t size = le32_read(left.data + 1);
        ASSERT(HEAD_BYTES + size <= left.len); /* recording_read checked this */
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
