/* The reader of event streams: what is an event, and where a broken stream can be resumed. */
#include "check_c.h"
#include "mcp/sse.h"

struct heard {
    struct sse sse;
    char events[1024]; /* each followed by "|" */
};

static void take_event(void *context, struct slice data)
{
    struct heard *heard = context;
    size_t used = strlen(heard->events);
    assert_true(used + data.len + 2 < sizeof heard->events);
    memcpy(heard->events + used, data.data, data.len);
    memcpy(heard->events + used + data.len, "|", 2);
}

static void begin(struct heard *heard, size_t bytes_max)
{
    memset(heard, 0, sizeof *heard);
    sse_init(&heard->sse, &mem_libc, bytes_max);
    heard->sse.event = take_event;
    heard->sse.context = heard;
}

static void check_events(const char *stream, const char *events, const char *last_id)
{
    /* In one piece, and byte by byte. */
    for (int cut = 0; cut < 2; cut++) {
        struct heard heard;
        begin(&heard, 100);
        for (size_t at = 0, len = strlen(stream); at < len;) {
            size_t step = cut ? 1 : len;
            assert_int_equal(sse_read(&heard.sse, slice_of(stream + at, step)), OK);
            at += step;
        }
        assert_string_equal(heard.events, events);
        assert_string_equal(heard.sse.last_id, last_id);
        sse_release(&heard.sse);
    }
}

static void lines_end_with_any_of_the_three_line_ends(void **state)
{
    (void)state;
    check_events("data: a\n\ndata: b\r\n\r\ndata: c\r\r", "a|b|c|", "");
    check_events("data: a\r\ndata: b\rdata: c\n\n", "a\nb\nc|", "");
}

static void an_event_is_handed_on_at_its_blank_line_only(void **state)
{
    (void)state;
    check_events("id: 1\ndata: a\n", "", "");
    check_events("id: 1\ndata: a\n\nid: 2\ndata: b\n", "a|", "1");
}

static void an_event_without_data_still_says_where_to_resume(void **state)
{
    (void)state;
    check_events("id: 5\ndata:\n\n", "", "5");
    check_events("id: 5\n\ndata: a\n\n", "a|", "5");
}

static void comments_other_types_and_unknown_fields_are_skipped(void **state)
{
    (void)state;
    check_events(": hello\nevent: ping\ndata: x\n\nfoo: 1\ndata:y\n\nevent: message\ndata: z\n\n",
        "y|z|", "");
    check_events("\xef\xbb\xbf"
                 "data: a\n\n",
        "a|", "");
}

static void an_id_that_cannot_be_sent_back_is_none(void **state)
{
    (void)state;
    check_events("id: 1\ndata: a\n\nid: \x01\ndata: b\n\n", "a|b|", "");
}

static void the_pause_is_what_the_server_asks_for_within_a_limit(void **state)
{
    (void)state;
    struct heard heard;
    begin(&heard, 100);
    assert_int_equal(heard.sse.retry_ms, -1);
    assert_int_equal(sse_read(&heard.sse, SLICE_LIT("retry: 250\nretry: soon\n")), OK);
    assert_int_equal(heard.sse.retry_ms, 250);
    assert_int_equal(sse_read(&heard.sse, SLICE_LIT("retry: 99999999999999999999\n")), OK);
    assert_int_equal(heard.sse.retry_ms, SSE_RETRY_MS_MAX);
    sse_release(&heard.sse);
}

static void an_event_past_the_limit_is_refused(void **state)
{
    (void)state;
    struct heard heard;
    begin(&heard, 16);
    assert_int_equal(
        sse_read(&heard.sse, SLICE_LIT("data: 0123456789\ndata: 0123456789\n")), E_LIMIT);
    assert_int_equal(sse_read(&heard.sse, SLICE_LIT("\ndata: a\n\n")), E_LIMIT);
    assert_string_equal(heard.events, "");
    sse_release(&heard.sse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_with_any_of_the_three_line_ends),
        cmocka_unit_test(an_event_is_handed_on_at_its_blank_line_only),
        cmocka_unit_test(an_event_without_data_still_says_where_to_resume),
        cmocka_unit_test(comments_other_types_and_unknown_fields_are_skipped),
        cmocka_unit_test(an_id_that_cannot_be_sent_back_is_none),
        cmocka_unit_test(the_pause_is_what_the_server_asks_for_within_a_limit),
        cmocka_unit_test(an_event_past_the_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
