#include "cli/ls_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/text.h"

enum {
    NAME_COLUMNS_MAX = 32, /* of scope and key; after longer ones the reason is not aligned */
    WORD_COLUMNS_MIN = 24, /* less is too short to read: the reason goes to the next line */
    FIXED_COLUMNS = 72,    /* of a line, before scope and key */
    CUT_COLUMNS = 3,       /* "..." */
};

struct ls_row {
    struct ls_row *before;
    enum once_status status;
    int64_t since_ms;  /* of the last change */
    struct slice json; /* the whole output with --json; the rest is for people */
    struct slice id;
    struct slice name; /* tenant, if shown, scope and key */
    struct slice word; /* the reason */
    uint64_t attempt;
    uint64_t duplicates;
};

void ls_rows_init(struct ls_rows *list, struct cli *cli, bool is_unknown, size_t limit)
{
    *list = (struct ls_rows){.cli = cli,
        .is_unknown = is_unknown,
        .has_tenant = cli_flag(cli, "all-tenants"),
        .now_ms = cli_now_ms(),
        .left = limit == 0 ? SIZE_MAX : limit};
    arena_init(&list->rows, &mem_libc, LS_ROWS_BYTES_MAX);
}

void ls_rows_release(struct ls_rows *list)
{
    arena_release(&list->rows);
}

/* The clocks of two machines may differ. */
static int64_t age_ms(const struct ls_rows *list, int64_t since_ms)
{
    return list->now_ms > since_ms ? list->now_ms - since_ms : 0;
}

char *ls_put_age(char ret_text[32], int64_t ms)
{
    int64_t seconds = ms > 0 ? ms / 1000 : 0;
    if (seconds < 60) {
        (void)snprintf(ret_text, 32, "%llds", (long long)seconds);
    } else if (seconds < 3600) {
        (void)snprintf(ret_text, 32, "%lldm", (long long)(seconds / 60));
    } else if (seconds < 86400) {
        (void)snprintf(ret_text, 32, "%lldh", (long long)(seconds / 3600));
    } else {
        (void)snprintf(ret_text, 32, "%lldd", (long long)(seconds / 86400));
    }
    return ret_text;
}

size_t ls_fit(struct slice text, size_t columns)
{
    size_t used = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        size_t wide = c < 0x20 || c == 0x7f ? 4 : 1; /* "\x1b" */
        if ((c & 0xc0) == 0x80) {
            continue; /* the rest of a character that fitted */
        }
        if (wide > columns - used) {
            return i;
        }
        used += wide;
    }
    return text.len;
}

/* ---- taking copies ------------------------------------------------------------------------- */

void ls_put_document(struct buf *out, const struct operation *operation, int64_t age_ms)
{
    struct jsonw json = {.out = out, .comma = true};
    buf_clear(out);
    if (age_ms < 0) {
        buf_slice(out, operation->json);
        return;
    }
    buf_slice(out, slice_of(operation->json.data, operation->json.len - 1)); /* without its "}" */
    jsonw_i64(&json, "age_ms", age_ms);
    buf_char(out, '}');
}

static bool copy_json(struct ls_rows *list, const struct operation *operation, struct ls_row *row)
{
    struct buf bytes;
    buf_init(&bytes, &mem_libc, LS_DOCUMENT_BYTES_MAX);
    ls_put_document(&bytes, operation, list->is_unknown ? age_ms(list, operation->updated_ms) : -1);
    bool copied =
        buf_status(&bytes) == OK && arena_copy(&list->rows, buf_view(&bytes), &row->json) == OK;
    buf_release(&bytes);
    return copied;
}

/* The name of a row: texts separated by blanks. */
static bool copy_name(struct ls_rows *list, const struct operation *operation, struct ls_row *row)
{
    const struct json_value *tenant = operation_member(operation, "tenant");
    struct slice parts[] = {
        list->has_tenant && json_is(tenant, JSON_STRING) ? json_text(tenant) : SLICE_EMPTY,
        operation->scope, operation->key};
    struct buf name;
    buf_init(&name, &mem_libc, LS_DOCUMENT_BYTES_MAX);
    for (size_t i = list->has_tenant ? 0 : 1; i < COUNT(parts); i++) {
        buf_str(&name, name.len > 0 ? " " : "");
        buf_slice(&name, parts[i]);
    }
    bool copied =
        buf_status(&name) == OK && arena_copy(&list->rows, buf_view(&name), &row->name) == OK;
    buf_release(&name);
    return copied;
}

static bool copy_words(struct ls_rows *list, const struct operation *operation, struct ls_row *row)
{
    row->attempt = operation->attempt;
    row->duplicates = operation->duplicates;
    return copy_name(list, operation, row) &&
           arena_copy(&list->rows, operation->id, &row->id) == OK &&
           arena_copy(&list->rows, operation->reason, &row->word) == OK;
}

static bool take(struct ls_rows *list, const struct operation *operation)
{
    struct ls_row *row = arena_zalloc(&list->rows, sizeof *row);
    if (row == NULL ||
        !(list->cli->json ? copy_json(list, operation, row) : copy_words(list, operation, row))) {
        return false;
    }
    row->status = operation->status;
    row->since_ms = operation->updated_ms;
    row->before = list->newest;
    list->newest = row;
    list->count++;
    return true;
}

bool ls_rows_add(struct ls_rows *list, const struct operation *operation)
{
    if (take(list, operation)) {
        return true;
    }
    /* Full: make room by printing this part. */
    return list->count > 0 && ls_rows_print(list) && take(list, operation);
}

/* ---- printing ------------------------------------------------------------------------------ */

/* Rows of the same age by their text, so that the order is always the same. */
static int newest_first(const void *a, const void *b)
{
    const struct ls_row *one = *(const struct ls_row *const *)a;
    const struct ls_row *other = *(const struct ls_row *const *)b;
    if (one->since_ms != other->since_ms) {
        return one->since_ms > other->since_ms ? -1 : 1;
    }
    struct slice x = one->json.len > 0 ? one->json : one->id;
    struct slice y = one->json.len > 0 ? other->json : other->id;
    int order = memcmp(y.data, x.data, x.len < y.len ? x.len : y.len);
    return order != 0 ? order : (y.len > x.len) - (y.len < x.len);
}

static size_t columns_of(struct slice text)
{
    size_t columns = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        columns += c < 0x20 || c == 0x7f ? 4 : (c & 0xc0) != 0x80;
    }
    return columns;
}

/* Columns of the terminal; 0: it is not a terminal, so nothing is cut. */
static size_t terminal_columns(void)
{
    struct winsize size = {0};
    return isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col
                                                                                      : 0;
}

/* The reason, cut at the end of the line; on the next line if there is hardly any room on this
 * one. */
static void print_word(struct slice word, size_t used, size_t columns)
{
    size_t room = columns == 0 ? SIZE_MAX : columns - used % columns;
    if (room < WORD_COLUMNS_MIN) {
        room += columns;
    }
    if (columns_of(word) <= room || room <= CUT_COLUMNS) {
        out_safe(word);
        return;
    }
    out_safe(slice_of(word.data, ls_fit(word, room - CUT_COLUMNS)));
    out_text("...");
}

static void print_row(
    const struct ls_rows *list, const struct ls_row *row, size_t name_columns, size_t columns)
{
    char age[32];
    char time[TEXT_TIME_BYTES];
    size_t used = columns_of(row->name);
    out_text("%-39.*s  %s%-11s%s  ", SLICE_ARGS(row->id), out_tint(operation_tint(row->status)),
        once_status_name(row->status), out_plain());
    if (list->is_unknown) {
        out_text("%4s  ", ls_put_age(age, age_ms(list, row->since_ms)));
    } else {
        out_text("%-24s  ", text_put_time(time, row->since_ms));
    }
    out_text(
        "%4llu  %4llu  ", (unsigned long long)row->attempt, (unsigned long long)row->duplicates);
    out_safe(row->name);
    if (list->is_unknown && row->word.len > 0) {
        size_t pad = used < name_columns ? name_columns - used : 0;
        out_text("%*s  ", (int)pad, "");
        print_word(row->word, FIXED_COLUMNS + used + pad + 2, columns);
    }
    out_text("\n");
}

static const char *name_heading(const struct ls_rows *list)
{
    return list->has_tenant ? "TENANT SCOPE KEY" : "SCOPE KEY";
}

static void print_heading(const struct ls_rows *list, size_t name_columns)
{
    const char *name = name_heading(list);
    out_text("%s%-39s  %-11s  ", out_tint(TINT_FAINT), "OPERATION", "STATUS");
    if (list->is_unknown) {
        out_text("%4s  %4s  %4s  %-*s  REASON", "AGE", "TRY", "DUP", (int)name_columns, name);
    } else {
        out_text("%-24s  %4s  %4s  %s", "UPDATED", "TRY", "DUP", name);
    }
    out_text("%s\n", out_plain());
}

static void print_words(const struct ls_rows *list, struct ls_row **rows, size_t count)
{
    size_t name_columns = strlen(name_heading(list));
    for (size_t i = 0; i < count; i++) {
        size_t columns = columns_of(rows[i]->name);
        columns = columns < NAME_COLUMNS_MAX ? columns : NAME_COLUMNS_MAX;
        name_columns = columns > name_columns ? columns : name_columns;
    }
    if (list->printed == 0 && count > 0) {
        print_heading(list, name_columns);
    }
    size_t columns = terminal_columns();
    for (size_t i = 0; i < count && !out_broken(); i++) {
        print_row(list, rows[i], name_columns, columns);
    }
}

static void print_json(const struct ls_rows *list, struct ls_row **rows, size_t count)
{
    for (size_t i = 0; i < count && !out_broken(); i++) {
        out_text(list->printed + i > 0 ? "," : "");
        out_bytes(rows[i]->json);
    }
}

bool ls_rows_print(struct ls_rows *list)
{
    struct ls_row **rows = mem_alloc(&mem_libc, (list->count + 1) * sizeof(struct ls_row *));
    if (rows == NULL) {
        return false;
    }
    size_t at = list->count;
    for (struct ls_row *row = list->newest; row != NULL; row = row->before) {
        rows[--at] = row;
    }
    qsort(rows, list->count, sizeof(struct ls_row *), newest_first);
    size_t count = list->count < list->left ? list->count : list->left;
    if (list->cli->json) {
        print_json(list, rows, count);
    } else {
        print_words(list, rows, count);
    }
    list->printed += count;
    list->left -= count;
    list->newest = NULL;
    list->count = 0;
    arena_clear(&list->rows);
    mem_free(&mem_libc, rows);
    return true;
}
