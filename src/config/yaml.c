/*
 * Reads a YAML file into a tree with places: only the unambiguous subset of YAML.
 *
 * Anchors, aliases, tags, several documents, repeated keys, tabs, and line breaks that not every
 * editor shows are refused, each at its place. libyaml parses; its output is copied.
 */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/check.h"
#include "base/text.h"
#include "config/impl.h"

/* A tree that is being built. */
struct builder {
    struct config_reader *reader;
    struct yaml_node *open[CONFIG_DEPTH_MAX]; /* the open lists and maps around the next node */
    size_t depth;                             /* how many are open */
    struct yaml_node *root;
    unsigned documents;
};

/* ---- bytes ------------------------------------------------------------------------------- */

/* Bytes of the well-formed character at the start; 0: there is none. */
static size_t character(struct slice text)
{
    unsigned char c = (unsigned char)text.data[0];
    size_t len = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    return len <= text.len && text_utf8(slice_of(text.data, len)) ? len : 0;
}

/* What is wrong with a character, or NULL. */
static const char *character_fault(struct slice rest, size_t len)
{
    unsigned char c = (unsigned char)rest.data[0];
    if (len == 0) {
        return "not UTF-8";
    }
    if (c == '\t') {
        return "a tab; indent with spaces";
    }
    if (c == '\r' && (rest.len < 2 || rest.data[1] != '\n')) {
        return "a carriage return without a newline";
    }
    if ((c < ' ' && c != '\n' && c != '\r') || c == 127) {
        return "a control character";
    }
    /* NEL, LS and PS end a line in YAML 1.1, but in hardly any editor. */
    if (len > 1 && (memcmp(rest.data, "\xC2\x85", 2) == 0 ||
                       (len == 3 && (memcmp(rest.data, "\xE2\x80\xA8", 3) == 0 ||
                                        memcmp(rest.data, "\xE2\x80\xA9", 3) == 0)))) {
        return "a line separator other than a newline";
    }
    return NULL;
}

static enum status check_bytes(struct config_reader *reader)
{
    struct yaml_node place = {.line = 1, .column = 1};
    size_t at = 0;
    while (at < reader->text.len) {
        struct slice rest = slice_of(reader->text.data + at, reader->text.len - at);
        size_t len = character(rest);
        const char *fault = character_fault(rest, len);
        if (fault != NULL) {
            reader_fault(reader, &place, NULL, "%s", fault);
            return E_INVALID; /* one fault is enough: a file that is not YAML has thousands */
        }
        place.column = rest.data[0] == '\n' ? 1 : place.column + 1;
        place.line += rest.data[0] == '\n';
        at += len;
    }
    return OK;
}

/* ---- the tree ---------------------------------------------------------------------------- */

static struct yaml_node *node_new(
    struct builder *builder, enum yaml_kind kind, const yaml_event_t *event)
{
    struct yaml_node *node = arena_zalloc(&builder->reader->config->arena, sizeof *node);
    if (node != NULL) {
        node->kind = kind;
        node->line = (unsigned)event->start_mark.line + 1;
        node->column = (unsigned)event->start_mark.column + 1;
    }
    return node;
}

/* A repeated key has two readings; the later one is skipped. */
static void check_doubled(struct builder *builder, struct yaml_node *map, struct yaml_node *key)
{
    for (struct yaml_node *other = map->first; other != key; other = other->next) {
        if (other->kind == YAML_SCALAR && key->kind == YAML_SCALAR &&
            slice_equal(other->text, key->text)) {
            reader_fault(builder->reader, key, NULL,
                "key '%.*s' is given twice; the first is in line %u", SLICE_ARGS(key->text),
                other->line);
            key->kind = YAML_BAD;
            return;
        }
    }
}

/* Put a node where it belongs: as the value of the last key, or as a new child. */
static enum status attach(struct builder *builder, struct yaml_node *node)
{
    struct yaml_node *parent = builder->depth == 0 ? NULL : builder->open[builder->depth - 1];
    if (parent == NULL) {
        builder->root = node;
    } else if (parent->kind == YAML_MAP && parent->last != NULL && parent->last->value == NULL) {
        parent->last->value = node;
    } else {
        *(parent->first == NULL ? &parent->first : &parent->last->next) = node;
        parent->last = node;
        parent->count++;
        if (parent->kind == YAML_MAP && parent->count > YAML_KEYS_MAX) {
            reader_fault(builder->reader, node, NULL, "more than %d keys", YAML_KEYS_MAX);
            return E_INVALID;
        }
        if (parent->kind == YAML_MAP) {
            check_doubled(builder, parent, node);
        }
    }
    return OK;
}

static enum status add_scalar(struct builder *builder, const yaml_event_t *event)
{
    struct yaml_node *node = node_new(builder, YAML_SCALAR, event);
    struct slice value = slice_of(event->data.scalar.value, event->data.scalar.length);
    const char *copy = node == NULL ? NULL : config_text(builder->reader->config, value);
    if (copy == NULL) {
        return E_NOMEM;
    }
    node->text = slice_of(copy, value.len);
    node->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (memchr(copy, '\0', value.len) != NULL) {
        reader_fault(builder->reader, node, NULL, "a NUL character");
        node->kind = YAML_BAD;
    }
    return attach(builder, node);
}

static enum status open_node(
    struct builder *builder, enum yaml_kind kind, const yaml_event_t *event)
{
    struct yaml_node *node = node_new(builder, kind, event);
    if (node == NULL) {
        return E_NOMEM;
    }
    if (builder->depth == CONFIG_DEPTH_MAX) {
        reader_fault(builder->reader, node, NULL, "nested deeper than %d levels", CONFIG_DEPTH_MAX);
        return E_INVALID;
    }
    enum status status = attach(builder, node);
    builder->open[builder->depth++] = node;
    return status;
}

static enum status add_alias(struct builder *builder, const yaml_event_t *event)
{
    struct yaml_node *node = node_new(builder, YAML_BAD, event);
    if (node == NULL) {
        return E_NOMEM;
    }
    reader_fault(
        builder->reader, node, "write the value out", "aliases ('*name') are not supported");
    return attach(builder, node);
}

/* Anchors and tags are on the node itself. */
static void check_decoration(struct config_reader *reader, const yaml_event_t *event,
    const yaml_char_t *anchor, const yaml_char_t *tag)
{
    struct yaml_node place = {.line = (unsigned)event->start_mark.line + 1,
        .column = (unsigned)event->start_mark.column + 1};
    if (anchor != NULL) {
        reader_fault(reader, &place, "write the value out where it is needed",
            "anchors ('&name') are not supported");
    }
    if (tag != NULL) {
        reader_fault(reader, &place, "leave it out: the name of a setting says what it is",
            "tags ('!name') are not supported");
    }
}

static enum status begin_document(struct builder *builder, const yaml_event_t *event)
{
    if (++builder->documents == 1) {
        return OK;
    }
    struct yaml_node place = {.line = (unsigned)event->start_mark.line + 1,
        .column = (unsigned)event->start_mark.column + 1};
    reader_fault(builder->reader, &place, "one file is one configuration",
        "a second document ('---') is not supported");
    return E_INVALID;
}

static enum status take_event(struct builder *builder, const yaml_event_t *event)
{
    struct config_reader *reader = builder->reader;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT: return begin_document(builder, event);
    case YAML_ALIAS_EVENT: return add_alias(builder, event);
    case YAML_SCALAR_EVENT:
        check_decoration(reader, event, event->data.scalar.anchor, event->data.scalar.tag);
        return add_scalar(builder, event);
    case YAML_SEQUENCE_START_EVENT:
        check_decoration(
            reader, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        return open_node(builder, YAML_LIST, event);
    case YAML_MAPPING_START_EVENT:
        check_decoration(
            reader, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        return open_node(builder, YAML_MAP, event);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        ASSERT(builder->depth > 0);
        builder->depth--;
        return OK;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT: return OK;
    }
    return OK;
}

/* If a file's last line has no line end, libyaml reports the end as being in the next line. */
static void keep_inside(struct slice text, struct yaml_node *place)
{
    unsigned lines = 1;
    unsigned column = 1;
    for (size_t i = 0; i < text.len; i++) {
        bool is_end = text.data[i] == '\n';
        bool is_start = ((unsigned char)text.data[i] & 0xC0U) != 0x80U; /* whether the byte starts a
                                                                           character */
        lines += is_end;
        column = is_end ? 1 : column + is_start;
    }
    if (place->line > lines) {
        place->line = lines;
        place->column = column;
    }
}

static enum status syntax_fault(struct config_reader *reader, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR) {
        return E_NOMEM;
    }
    struct yaml_node place = {.line = (unsigned)parser->problem_mark.line + 1,
        .column = (unsigned)parser->problem_mark.column + 1};
    keep_inside(reader->text, &place);
    reader_fault(reader, &place, NULL, "not YAML: %s%s%s",
        parser->problem == NULL ? "cannot be read" : parser->problem,
        parser->context == NULL ? "" : " ", parser->context == NULL ? "" : parser->context);
    return E_INVALID;
}

enum status yaml_load(struct config_reader *reader, struct yaml_node **ret_root)
{
    struct builder builder = {.reader = reader};
    yaml_parser_t parser;
    yaml_event_t event;
    bool is_over = false;
    enum status status = check_bytes(reader);
    if (status != OK) {
        return status;
    }
    if (yaml_parser_initialize(&parser) == 0) {
        return E_NOMEM;
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(
        &parser, (const unsigned char *)reader->text.data, reader->text.len);
    while (status == OK && !is_over) {
        if (yaml_parser_parse(&parser, &event) == 0) {
            status = syntax_fault(reader, &parser);
            break;
        }
        status = take_event(&builder, &event);
        is_over = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    if (status == OK) {
        *ret_root = builder.root;
    }
    return status;
}

const struct yaml_node *yaml_place_of(const struct yaml_node *map, const char *name)
{
    for (const struct yaml_node *key = map->first; key != NULL; key = key->next) {
        if (slice_is(key->text, name)) {
            return key;
        }
    }
    return map;
}

bool yaml_is_null(const struct yaml_node *node)
{
    return node->kind == YAML_SCALAR && node->is_plain &&
           (node->text.len == 0 || slice_is(node->text, "~") || slice_is(node->text, "null") ||
               slice_is(node->text, "Null") || slice_is(node->text, "NULL"));
}
