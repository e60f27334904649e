/*
 * Webhooks of Meta (WhatsApp, Messenger, Instagram, pages): one body carries entries, an entry
 * carries changes, a change carries messages and statuses. Each message, status and other change is
 * an event, because Meta resends unanswered ones in a different grouping.
 *
 * A handler gets each event as if Meta had sent it alone, in the same wrapping. A body with one
 * event is passed on unchanged.
 */
#include "base/macros.h"
#include "inbox/event_impl.h"

/* The position of an event in the body. */
struct meta_place {
    const struct json_value *entry;
    const char *list;                /* "changes" or "messaging"; NULL: the entry is the event */
    const struct json_value *change; /* the item of that list */
    const char *inner;               /* "messages" or "statuses"; NULL: the change is the event */
    const struct json_value *item;   /* an item of inner */
};

static void put_member(struct buf *out, struct slice body, const struct json_member *member)
{
    /* Both are bytes of the body: names keep their escapes. */
    buf_slice(out, json_raw(body, &member->name));
    buf_char(out, ':');
    buf_slice(out, json_raw(body, &member->value));
}

/* An object without some of its members, left open: a member may follow. */
static void put_open(struct buf *out, struct slice body, const struct json_value *object,
    const char *const *without, size_t count)
{
    bool is_first = true;
    buf_char(out, '{');
    for (uint32_t i = 0; i < object->count; i++) {
        const struct json_member *member = &object->members[i];
        bool is_left_out = false;
        for (size_t j = 0; j < count; j++) {
            is_left_out = is_left_out || slice_is(json_text(&member->name), without[j]);
        }
        if (!is_left_out) {
            buf_str(out, is_first ? "" : ",");
            put_member(out, body, member);
            is_first = false;
        }
    }
    buf_str(out, is_first ? "" : ",");
}

static void put_inner(struct buf *out, struct slice body, const struct meta_place *place)
{
    static const char *const lists[] = {"messages", "statuses"};
    static const char *const value_of[] = {"value"};
    if (place->inner == NULL) {
        buf_slice(out, json_raw(body, place->change));
        return;
    }
    put_open(out, body, place->change, value_of, 1);
    buf_str(out, "\"value\":");
    put_open(out, body, event_find(place->change, "value"), lists, 2);
    buf_printf(out, "\"%s\":[", place->inner);
    buf_slice(out, json_raw(body, place->item));
    buf_str(out, "]}}");
}

/* The body, with only this event in it. */
static void put_alone(
    struct buf *out, const struct event_reader *reader, const struct meta_place *place)
{
    static const char *const lists[] = {"changes", "messaging", "standby"};
    static const char *const entries[] = {"entry"};
    put_open(out, reader->body, reader->root, entries, 1);
    buf_str(out, "\"entry\":[");
    if (place->list == NULL) {
        buf_slice(out, json_raw(reader->body, place->entry));
    } else {
        put_open(out, reader->body, place->entry, lists, 3);
        buf_printf(out, "\"%s\":[", place->list);
        put_inner(out, reader->body, place);
        buf_str(out, "]}");
    }
    buf_str(out, "]}");
}

/* A message's wamid (or mid); for a status, the wamid of its message, the status and its time. */
static enum status take_id(
    struct event_reader *reader, const struct meta_place *place, struct event *event)
{
    const struct json_value *of = place->item != NULL ? place->item : place->change;
    const struct json_value *message = event_find(of, "message");
    struct slice id = event_text(event_find(of, "id"));
    struct slice status = event_text(event_find(of, "status"));
    struct slice at = event_text(event_find(of, "timestamp"));
    if (message != NULL) {
        id = event_text(event_find(message, "mid"));
    }
    if (id.len == 0 || place->list == NULL || (place->item == NULL && message == NULL)) {
        return OK; /* named by its bytes */
    }
    if (place->inner == NULL || strcmp(place->inner, "statuses") != 0) {
        event->id = id;
        return OK;
    }
    struct buf out;
    event_buf(reader, &out);
    buf_slice(&out, id);
    buf_char(&out, '/');
    buf_slice(&out, status);
    buf_char(&out, '/');
    buf_slice(&out, at);
    event->id = buf_view(&out);
    return buf_status(&out) == OK ? OK : event_no_memory(reader);
}

static enum status add(struct event_reader *reader, const struct meta_place *place)
{
    struct event *event = event_add(reader);
    struct buf out;
    const struct json_value *alone = NULL;
    if (event == NULL) {
        return reader->err->status;
    }
    event_buf(reader, &out);
    put_alone(&out, reader, place);
    if (buf_status(&out) != OK) {
        return event_no_memory(reader);
    }
    event->bytes = buf_view(&out);
    event->type = SLICE_LIT("application/json");
    enum status status = take_id(reader, place, event);
    status = status == OK ? json_read(event->bytes, reader->arena, &alone, reader->err) : status;
    if (status != OK) {
        return status;
    }
    /* The message itself is compared: the contacts and the like around it belong to the batch. */
    const struct json_value *of = place->item != NULL ? place->item : alone;
    status = event_finish(reader, event, event->bytes, of);
    if (status == OK && place->item != NULL && reader->rule->order_source.len > 0) {
        status = event_order(reader, event, alone);
    }
    return status;
}

static enum status add_each(struct event_reader *reader, struct meta_place place, const char *inner)
{
    const struct json_value *value = event_find(place.change, "value");
    const struct json_value *items = event_find(value, inner);
    enum status status = OK;
    place.inner = inner;
    for (uint32_t i = 0; status == OK && json_is(items, JSON_ARRAY) && i < items->count; i++) {
        place.item = &items->items[i];
        status = add(reader, &place);
    }
    return status;
}

static enum status add_change(struct event_reader *reader, const struct meta_place *place)
{
    size_t before = reader->events->count;
    enum status status = add_each(reader, *place, "messages");
    status = status == OK ? add_each(reader, *place, "statuses") : status;
    if (status == OK && reader->events->count == before) {
        status = add(reader, place);
    }
    return status;
}

static enum status add_entry(struct event_reader *reader, const struct json_value *entry)
{
    static const char *const lists[] = {"changes", "messaging", "standby"};
    size_t before = reader->events->count;
    enum status status = OK;
    for (size_t i = 0; status == OK && i < COUNT(lists); i++) {
        const struct json_value *items = event_find(entry, lists[i]);
        for (uint32_t j = 0; status == OK && json_is(items, JSON_ARRAY) && j < items->count; j++) {
            struct meta_place place = {
                .entry = entry, .list = lists[i], .change = &items->items[j]};
            status = add_change(reader, &place);
        }
    }
    if (status == OK && reader->events->count == before) {
        status = add(reader, &(struct meta_place){.entry = entry});
    }
    return status;
}

enum status event_read_meta(struct event_reader *reader)
{
    const struct json_value *entries = event_find(reader->root, "entry");
    enum status status = OK;
    if (!json_is(entries, JSON_ARRAY) || entries->count == 0) {
        return err_set(reader->err, E_INVALID, "the body has no list of entries");
    }
    for (uint32_t i = 0; status == OK && i < entries->count; i++) {
        status = add_entry(reader, &entries->items[i]);
    }
    if (status == OK && reader->events->count == 1) {
        reader->events->items[0].bytes = reader->body;
    }
    return status;
}
